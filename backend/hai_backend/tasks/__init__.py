"""The life of a task as a pure state machine: `step(task, event, now)`; see lifecycle.py for the table."""

from hai_backend.tasks.lifecycle import Step, step, steps
from hai_backend.tasks.resume import greeting, relaunch, resumed

__all__ = ["Step", "greeting", "relaunch", "resumed", "step", "steps"]
