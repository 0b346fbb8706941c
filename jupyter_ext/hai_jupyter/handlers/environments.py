"""Environments: those that there are, and the command line that makes one or gives one a kernel.

The page runs it in a terminal of Jupyter's, where its output is seen and it can be interrupted.
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
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.kernels.environments import default_root, ready
from hai_jupyter.proto_json import to_json_value

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PYTHON = re.compile(r"\d+\.\d+(\.\d+)?|")
_ACTIONS = ("create", "kernel")


class EnvironmentsHandler(Handler):
    """Python environments on the cluster's storage."""

    @answers
    async def get(self) -> Any:
        """By owner and name; `kernel` says whether Jupyter can run it here, where that can be seen."""
        found = await asyncio.to_thread(lambda: list(ready(self.backend.environments)))
        kernels = {(e.owner, e.name): e.has_kernel for e in found}
        return [
            {**to_json_value(one, whole=True), "kernel": kernels.get((one.owner, one.name))}
            for one in await self.client.environments.list()
        ]


class CommandHandler(Handler):
    """`haienv …` as a line for a terminal."""

    @answers
    async def post(self) -> Any:
        """The line; every word of it is quoted."""
        argv = arguments(self.body())
        root = self.backend.environments
        before = [] if root == default_root() else ["env", f"HAIENV_HOME={Path(root)}"]
        return {"command": shlex.join([*before, sys.executable, "-m", "haienv", *argv])}


def arguments(said: Mapping[str, Any]) -> list[str]:
    """What haienv is told, with every mistake named at once."""
    name, python = said.get("name"), said.get("python", "")
    packages = said.get("packages", [])
    wrong = []
    if said.get("action") not in _ACTIONS:
        wrong.append(("action", f"must be one of {', '.join(_ACTIONS)}"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        wrong.append(("name", "must be letters, digits, dots, - and _, at most 63"))
    if not isinstance(python, str) or not _PYTHON.fullmatch(python):
        wrong.append(("python", "must be a version, such as 3.11"))
    if not isinstance(packages, list) or not all(map(_is_package, packages)):
        wrong.append(("packages", "must be requirements as pip reads them, and no options"))
    if wrong:
        raise invalid(*wrong)
    if said["action"] == "kernel":
        return ["install", str(name), "ipykernel"]
    version = ["--no_extend", "--py", python] if python else []
    return ["create", *version, str(name), *packages]


def _is_package(argument: object) -> bool:
    return isinstance(argument, str) and argument.isprintable() and not argument.startswith("-")
