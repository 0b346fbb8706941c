"""HAI Platform for programs: `import hai` provides the in-task SDK, and `hai.client` manages tasks.

Names are imported at their first use, so a training program loads only the modules that it uses. The import of this
package loads neither grpc nor numpy, opens no files and starts no threads.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers assume True; this avoids the import of typing
if TYPE_CHECKING:
    from hai.task import EXP_PRIORITY as EXP_PRIORITY
    from hai.task import WARN_TYPE as WARN_TYPE
    from hai.task import bind_hf_except_hook as bind_hf_except_hook
    from hai.task import checkpoint_saved as checkpoint_saved
    from hai.task import disable_warn as disable_warn
    from hai.task import get_whole_life_state as get_whole_life_state
    from hai.task import go_suspend as go_suspend
    from hai.task import nb_name as nb_name
    from hai.task import node_name as node_name
    from hai.task import print_gpu_info as print_gpu_info
    from hai.task import rank as rank
    from hai.task import receive_suspend_command as receive_suspend_command
    from hai.task import self_health_check as self_health_check
    from hai.task import set_priority as set_priority
    from hai.task import set_watchdog_time as set_watchdog_time
    from hai.task import set_whole_life_state as set_whole_life_state
    from hai.task import suspend_agreed as suspend_agreed
    from hai.task import task_id as task_id
    from hai.task import wait_suspended as wait_suspended

    __version__: str

_TASK_NAMES = frozenset(
    {
        "EXP_PRIORITY",
        "WARN_TYPE",
        "bind_hf_except_hook",
        "checkpoint_saved",
        "disable_warn",
        "get_whole_life_state",
        "go_suspend",
        "nb_name",
        "node_name",
        "print_gpu_info",
        "rank",
        "receive_suspend_command",
        "self_health_check",
        "set_priority",
        "set_watchdog_time",
        "set_whole_life_state",
        "suspend_agreed",
        "task_id",
        "wait_suspended",
    }
)


if not TYPE_CHECKING:  # so that type checkers find misspelt names

    def __getattr__(name: str) -> object:
        value = globals()[name] = _find(name)  # later accesses do not call this function
        return value


def _find(name: str) -> object:
    import importlib

    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("hai-platform")
    if name == "task":
        return importlib.import_module("hai.task")
    if name in _TASK_NAMES:
        return getattr(importlib.import_module("hai.task"), name)
    raise AttributeError(f"module 'hai' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_TASK_NAMES, "task", "__version__"})
