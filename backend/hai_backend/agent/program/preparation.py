"""Prepares the workspace of a program, and checks for faults that prevent its start, to report them exactly."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from hai.host.script_check import script_fault
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.program.reaper import Reaper
from hai_backend.agent.rank_dir import RankDir

_INTERPRETERS = ("python", "python3", "bash", "sh")
_MAX_MESSAGE_BYTES = 2000


class CannotStart(Exception):
    """The program cannot be started. The message says why and what to do."""


async def prepare_workspace(welcome: pb.AgentWelcome, directory: RankDir, reaper: Reaper) -> Path:
    """Return the directory in which the program runs. If the task names a git repository, clone it there.

    Raises CannotStart.
    """
    if welcome.git_remote_repo:
        directory.scratch.mkdir(exist_ok=True)
        await _clone(welcome, directory.scratch, reaper)
        return directory.scratch
    if not welcome.workspace:
        directory.scratch.mkdir(exist_ok=True)
        return directory.scratch
    return _existing(Path(welcome.workspace))


def _existing(workspace: Path) -> Path:
    if not workspace.is_dir():
        raise CannotStart(
            f"the workspace {workspace} is not a directory on this node: check the path; "
            "one of your own machine comes here as a workspace (haiworkspace init)"
        )
    return workspace


def with_available_shell(argv: Sequence[str], variables: Mapping[str, str]) -> Sequence[str]:
    """Replace `bash FILE` by `sh FILE` if there is no bash. Small images often have none."""
    path = variables.get("PATH", os.defpath)
    needs_bash = bool(argv) and argv[0] == "bash" and _script_argument(argv) is not None
    return ["sh", *argv[1:]] if needs_bash and not _is_in_path("bash", path) else argv


def check_program(argv: Sequence[str], workspace: Path, variables: Mapping[str, str]) -> None:
    """Raise CannotStart if the program, or the file that an interpreter would run, cannot be executed."""
    if not argv:
        raise CannotStart("the task has no entrypoint")
    if "/" in argv[0]:
        _check_executable(workspace / argv[0])
        _check_script(workspace / argv[0], "", variables)
    elif not _is_in_path(argv[0], variables.get("PATH", os.defpath)):
        raise CannotStart(
            f"there is no program {argv[0]} in PATH; write ./{argv[0]} for a file of the workspace"
        )
    script = _script_argument(argv)
    if script is not None and not (workspace / script).exists():
        raise CannotStart(f"there is no entrypoint {workspace / script}: check the path")
    if script is not None:
        _check_script(workspace / script, argv[0], variables)


def _check_script(path: Path, interpreter: str, variables: Mapping[str, str]) -> None:
    if fault := script_fault(path, interpreter, variables.get("PATH", os.defpath)):
        raise CannotStart(fault)


def _is_in_path(name: str, path: str) -> bool:
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in path.split(os.pathsep))


def _check_executable(path: Path) -> None:
    if not path.exists():
        raise CannotStart(f"there is no entrypoint {path}: check the path")
    if path.is_dir() or not os.access(path, os.X_OK):
        raise CannotStart(f"the entrypoint {path} is not executable: chmod +x it")


def _script_argument(argv: Sequence[str]) -> str | None:
    """Return the file in `python3 -u FILE …` or `bash FILE …`; None if there is an option instead (-m, -c)."""
    if Path(argv[0]).name not in _INTERPRETERS:
        return None
    first = next((argument for argument in argv[1:] if argument != "-u"), "-")
    return None if first.startswith("-") else first


async def _clone(welcome: pb.AgentWelcome, target: Path, reaper: Reaper) -> None:
    """Fetch only the target revision, without its history, and check it out. Raises CannotStart."""
    repo, revision = welcome.git_remote_repo, welcome.git_target_revision or "HEAD"
    for step in (
        ("init", "--quiet"),
        ("fetch", "--quiet", "--depth", "1", "--", repo, revision),
        ("checkout", "--quiet", "--detach", "FETCH_HEAD"),
    ):
        message, code = await _git(step, target, reaper)
        if code != 0:
            raise CannotStart(
                f"cannot get revision {revision} of {repo} (git {step[0]} answered {code}): {message}"
            )


async def _git(arguments: Sequence[str], target: Path, reaper: Reaper) -> tuple[str, int]:
    variables = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}  # git must not wait for a password
    with (target.parent / "git.log").open("w+b") as output:
        try:
            child = reaper.spawn(("git", *arguments), output.fileno(), target, variables)
        except FileNotFoundError:
            return "there is no git on this node: install it", 127
        code = await child.ended
        output.seek(0)
        return output.read(_MAX_MESSAGE_BYTES).decode("utf-8", "replace").strip(), code


def reserve_port() -> socket.socket:
    """Return a socket bound to a free port, which reserves the port until the program starts."""
    port = socket.socket()
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind(("", 0))
    return port
