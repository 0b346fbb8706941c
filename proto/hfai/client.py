"""The calls that a training program makes to HAI. `hai.task` implements them."""

from __future__ import annotations

from hai.task import (
    EXP_PRIORITY,
    WARN_TYPE,
    bind_hf_except_hook,
    disable_warn,
    get_whole_life_state,
    go_suspend,
    print_gpu_info,
    receive_suspend_command,
    self_health_check,
    set_priority,
    set_watchdog_time,
    set_whole_life_state,
)

__all__ = [
    "EXP_PRIORITY",
    "WARN_TYPE",
    "bind_hf_except_hook",
    "disable_warn",
    "get_whole_life_state",
    "go_suspend",
    "print_gpu_info",
    "receive_suspend_command",
    "self_health_check",
    "set_priority",
    "set_watchdog_time",
    "set_whole_life_state",
]

_MANAGEMENT = {
    "create_experiment": "client.tasks.create(read_spec(FILE))",
    "create_experiment_v2": "client.tasks.create(read_spec(FILE))",
    "get_experiment": "client.tasks.get(client.tasks.resolve(NAME))",
    "get_experiments": "client.tasks.all(filter=…)",
}


def __getattr__(name: str) -> object:
    if name in _MANAGEMENT:
        raise ImportError(
            f"hfai.client.{name} is no part of HAI Platform: use hai.client, {_MANAGEMENT[name]}"
        )
    raise AttributeError(f"module 'hfai.client' has no attribute {name!r}")
