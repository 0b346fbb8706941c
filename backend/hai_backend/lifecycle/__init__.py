"""The life of a task as a pure state machine: `step(task, event, now)`; see lifecycle/state_machine.py for the
table."""

from hai_backend.lifecycle.recovery import messages_on_attach, relaunch, resumed
from hai_backend.lifecycle.state_machine import Step, step, steps

__all__ = ["Step", "messages_on_attach", "relaunch", "resumed", "step", "steps"]
