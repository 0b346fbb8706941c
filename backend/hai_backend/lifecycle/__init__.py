"""The life of a task as a pure state machine: `step(task, event, now)`. The table is in lifecycle/state_machine.py."""

from hai_backend.lifecycle.recovery import find_relaunch, instructions_on_attach, plan_recovery
from hai_backend.lifecycle.state_machine import Step, step, steps

__all__ = ["Step", "find_relaunch", "instructions_on_attach", "plan_recovery", "step", "steps"]
