"""Handlers of environments: lists them, and returns the command that creates one or adds a kernel to one.

The page runs the command in a terminal of Jupyter, which shows its output and can interrupt it.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers, to_json_value
from hai_jupyter.kernels.environments import default_root, ready

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PYTHON = re.compile(r"\d+\.\d+(\.\d+)?|")
_ACTIONS = ("create", "kernel")


class EnvironmentsHandler(Handler):
    """Python environments on the cluster's storage."""

    @answers
    async def get(self) -> Any:
        """Return the environments; `kernel` says whether Jupyter can run it here, or is null if this server cannot see
        it.
        """
        visible = await asyncio.to_thread(lambda: list(ready(self.shared.environments)))
        kernels = {(e.owner, e.name): e.has_kernel for e in visible}
        return [
            {**to_json_value(e, whole=True), "kernel": kernels.get((e.owner, e.name))}
            for e in await self.client.environments.list()
        ]


class CommandHandler(Handler):
    """A `haienv` command for a terminal."""

    @answers
    async def post(self) -> Any:
        """Return the command line, with every word quoted."""
        arguments = haienv_arguments(self.body())
        root = self.shared.environments
        prefix = [] if root == default_root() else ["env", f"HAIENV_HOME={Path(root)}"]
        return {"command": shlex.join([*prefix, sys.executable, "-m", "haienv", *arguments])}


def haienv_arguments(data: Mapping[str, Any]) -> list[str]:
    """Return the arguments of haienv for a request; report all faults at once."""
    name, python = data.get("name"), data.get("python", "")
    packages = data.get("packages", [])
    faults = []
    if data.get("action") not in _ACTIONS:
        faults.append(("action", f"must be one of {', '.join(_ACTIONS)}"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        faults.append(("name", "must be letters, digits, dots, - and _, at most 63"))
    if not isinstance(python, str) or not _PYTHON.fullmatch(python):
        faults.append(("python", "must be a version, such as 3.11"))
    if not isinstance(packages, list) or not all(map(_is_package, packages)):
        faults.append(("packages", "must be requirements as pip reads them, and no options"))
    if faults:
        raise invalid(*faults)
    if data["action"] == "kernel":
        return ["install", str(name), "ipykernel"]
    version = ["--no_extend", "--py", python] if python else []
    return ["create", *version, str(name), *packages]


def _is_package(argument: object) -> bool:
    return isinstance(argument, str) and argument.isprintable() and not argument.startswith("-")
