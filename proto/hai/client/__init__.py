"""The Python client of HAI Platform: everything that the `hai` command can do, from a program.

    async with Client(load()) as client:
        task = await client.tasks.create(read_spec("train.yaml"))
        task = await client.tasks.wait(task.id)

Names are loaded on first use, so that `import hai.client.profile` stays cheap and loads no grpc.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.errors import HaiError
    from hai.client.profile import Profile, load
    from hai.client.taskfile.spec import apply_option, read_spec, to_yaml

__all__ = ["Client", "HaiError", "Profile", "apply_option", "load", "read_spec", "to_yaml"]

_MODULES = {
    "Client": "hai.client.client",
    "HaiError": "hai.client.errors",
    "Profile": "hai.client.profile",
    "apply_option": "hai.client.taskfile.spec",
    "load": "hai.client.profile",
    "read_spec": "hai.client.taskfile.spec",
    "to_yaml": "hai.client.taskfile.spec",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name and return the name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
