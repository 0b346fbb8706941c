"""Runs haienv as a user.

The server executes no other program for environments, except that haienv runs the build scripts of packages without a
wheel. haienv runs with the user's uid if the server is root, with a temporary home, few variables, no shell, and a time
limit. All its child processes are in its session, which is killed at the end.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from hai_backend.domain.errors import Conflict
from hai_backend.environments.wheels import delete_old_entries

_SECONDS = 3600.0
_LINE_BYTES = 8192
_LAST_LINES = 500
_ERROR = "haienv: "
_PREFIX = "hai-build-"
_BUILD_DIRECTORY = re.compile(rf"{_PREFIX}\w+")
_PASSED_VARIABLES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "UV_DEFAULT_INDEX", "UV_INDEX"),
    *("UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE", "UV_NATIVE_TLS"),
)


class HaienvFailed(Exception):
    """haienv failed or exceeded its time limit. The message is that of haienv."""


class Haienv:
    """Runs haienv.

    Users without a uid build as `fallback_uid`, or if that is 0, as the user of the server. An empty `program` means
    the haienv beside this Python, or else the one in PATH.
    """

    def __init__(self, root: Path, *, pods: bool, fallback_uid: int = 0, program: str = "") -> None:
        self.root = root
        self._program = program
        self._pods = pods
        self._fallback_uid = fallback_uid

    def require_program(self) -> str:
        """Return the path of haienv. Raise Conflict when this server cannot build for any user."""
        beside = Path(sys.executable).with_name("haienv")
        program = self._program or (str(beside) if beside.exists() else shutil.which("haienv"))
        if not program:
            raise Conflict(
                "this server has no haienv: install hai-platform[env]", reason="NO_HAIENV"
            )
        if self._pods and os.geteuid() != 0:
            raise Conflict(
                "this server does not run as root, so it cannot build as other users; "
                "run haienv in a dev container, which sees the same storage",
                reason="NOT_ROOT",
            )
        return program

    async def run(
        self, user: str, uid: int, arguments: Sequence[str], build_directory: Path
    ) -> AsyncIterator[str]:
        """Yield the lines that haienv prints. Raise HaienvFailed. The process is killed when the iteration ends."""
        process = await self._start(user, uid, arguments, build_directory)
        last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        try:
            async with asyncio.timeout(_SECONDS):
                async for line in _read_lines(process):
                    last_lines.append(line)
                    yield line
                code = await process.wait()
        except TimeoutError:
            raise HaienvFailed(f"it took longer than {_SECONDS:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if code != 0:
            raise HaienvFailed(extract_error(tuple(last_lines)) or f"haienv ended with code {code}")

    async def _start(
        self, user: str, uid: int, arguments: Sequence[str], build_directory: Path
    ) -> asyncio.subprocess.Process:
        """Start haienv as the user, in a new session. Raise HaienvFailed."""
        try:
            return await asyncio.create_subprocess_exec(
                self.require_program(),
                *arguments,
                cwd=build_directory,
                env=self._variables(user, build_directory),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                limit=_LINE_BYTES,
                **self._process_owner(uid),
            )
        except OSError as error:
            message = f"{error.filename} cannot be started as uid {uid}: {error.strerror}"
            raise HaienvFailed(message) from error

    @asynccontextmanager
    async def build_directory(
        self, uid: int, texts: Mapping[str, str], wheels: Sequence[Path]
    ) -> AsyncIterator[Path]:
        """Create a temporary directory with these files for the duration of the block."""
        directory = Path(await asyncio.to_thread(self._create_build_directory, uid, texts, wheels))
        try:
            yield directory
        finally:
            # Not in a thread: a server that shuts down does not wait for threads.
            shutil.rmtree(directory, ignore_errors=True)

    def _create_build_directory(
        self, uid: int, texts: Mapping[str, str], wheels: Sequence[Path]
    ) -> str:
        """Create a build directory that belongs to the user. Delete old ones of killed servers."""
        delete_old_entries(Path(tempfile.gettempdir()), _BUILD_DIRECTORY)
        directory = tempfile.mkdtemp(prefix=_PREFIX)
        (Path(directory) / "wheels").mkdir()
        for name, text in texts.items():
            (Path(directory) / name).write_text(text)
        for wheel in wheels:
            shutil.copyfile(wheel, Path(directory) / "wheels" / wheel.name)
        for path in (Path(directory), *Path(directory).rglob("*")):
            self._chown(path, uid)
        return directory

    def ensure_user_directory(self, user: str, uid: int) -> None:
        """Create the user's directory below the root; other users may traverse it to public environments."""
        self.root.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (self.root / user).mkdir(mode=0o755)
            self._chown(self.root / user, uid)

    def _chown(self, path: Path, uid: int) -> None:
        if os.geteuid() == 0 and (owner := uid or self._fallback_uid):
            os.chown(path, owner, owner, follow_symlinks=False)

    def _process_owner(self, uid: int) -> dict[str, Any]:
        """Return the arguments that set uid and groups of a process.

        Raise HaienvFailed for users without a uid, because build scripts of packages must never run as root.
        """
        owner = uid or self._fallback_uid
        if self._pods and not owner:
            raise HaienvFailed(
                "you have no uid, and builds do not run as root; ask an operator for one"
            )
        if os.geteuid() != 0 or not owner:
            return {}
        return {"user": owner, "group": owner, "extra_groups": ()}

    def _variables(self, user: str, build_directory: Path) -> dict[str, str]:
        programs = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
        return {
            **{name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ},
            "PATH": os.pathsep.join(programs),
            "HOME": str(build_directory),
            "TMPDIR": str(build_directory),
            "LANG": "C.UTF-8",
            "HAIENV_HOME": str(self.root),
            "HAIENV_USER": user,
        }


def extract_error(lines: Sequence[str]) -> str:
    """Return the error of haienv, which may have many lines; the last line if another program printed them."""
    non_empty = [line.rstrip() for line in lines if line.strip()]
    errors = [i for i, line in enumerate(non_empty) if line.startswith(_ERROR)]
    if not errors:
        return non_empty[-1].strip() if non_empty else ""
    return "\n".join(non_empty[errors[-1] :]).removeprefix(_ERROR)


async def _read_lines(process: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """Yield lines as they arrive. Split lines that are too long."""
    assert process.stdout is not None
    while True:
        try:
            line = await process.stdout.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            line = error.partial
        except asyncio.LimitOverrunError as error:
            line = await process.stdout.readexactly(error.consumed)
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip()
