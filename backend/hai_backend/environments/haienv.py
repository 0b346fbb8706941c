"""Runs haienv in a user's name: the only thing of environments that the server executes, but for what packages that
have no wheel run while they are built.

As the user's uid where the server is root, with a home that is made for it and goes with it, few variables, no shell,
and an end. All that it forks is in its session, which is ended with it.
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
from hai_backend.environments.garbage import sweep

_SECONDS = 3600.0
_LINE_BYTES = 8192
_LAST_LINES = 500
_ERROR = "haienv: "
_PREFIX = "hai-build-"
_PLACE = re.compile(rf"{_PREFIX}\w+")
_PASSED = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "UV_DEFAULT_INDEX", "UV_INDEX"),
    *("UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE", "UV_NATIVE_TLS"),
)


class Failed(Exception):
    """haienv ended with another code than 0, or not in time; the message is its own."""


class Haienv:
    """`uid_of_nobody`: for users without a uid; 0: they are built for as the server's own user.

    `program`: empty: the haienv of this Python, or the one in PATH.
    """

    def __init__(
        self, root: Path, *, pods: bool, uid_of_nobody: int = 0, program: str = ""
    ) -> None:
        self.root = root
        self._program = program
        self._pods = pods
        self._uid_of_nobody = uid_of_nobody

    def require(self) -> str:
        """Where haienv is. Raises Conflict when this server cannot build for anybody."""
        beside = Path(sys.executable).with_name("haienv")
        found = self._program or (str(beside) if beside.exists() else shutil.which("haienv"))
        if not found:
            raise Conflict(
                "this server has no haienv: install hai-platform[env]", reason="NO_HAIENV"
            )
        if self._pods and os.geteuid() != 0:
            raise Conflict(
                "this server does not run as root, so it cannot build in the names of users; "
                "run haienv in a dev container, which sees the same storage",
                reason="NOT_ROOT",
            )
        return found

    async def run(
        self, user: str, uid: int, arguments: Sequence[str], place: Path
    ) -> AsyncIterator[str]:
        """What it prints, line by line. Raises Failed. Leaving the iteration ends it."""
        process = await self._started(user, uid, arguments, place)
        said: deque[str] = deque(maxlen=_LAST_LINES)
        try:
            async with asyncio.timeout(_SECONDS):
                async for line in _lines(process):
                    said.append(line)
                    yield line
                code = await process.wait()
        except TimeoutError:
            raise Failed(f"it took longer than {_SECONDS:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if code != 0:
            raise Failed(error_of(tuple(said)) or f"haienv ended with code {code}")

    async def _started(
        self, user: str, uid: int, arguments: Sequence[str], place: Path
    ) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                self.require(),
                *arguments,
                cwd=place,
                env=self._variables(user, place),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                limit=_LINE_BYTES,
                **self._identity(uid),
            )
        except OSError as error:
            why = f"{error.filename} cannot be started as uid {uid}: {error.strerror}"
            raise Failed(why) from error

    @asynccontextmanager
    async def place(
        self, uid: int, texts: Mapping[str, str], wheels: Sequence[Path]
    ) -> AsyncIterator[Path]:
        """A directory of the build's own, with these files; it goes with the build."""
        made = Path(await asyncio.to_thread(self._fill, uid, texts, wheels))
        try:
            yield made
        finally:
            # At once: a server that leaves waits for no thread.
            shutil.rmtree(made, ignore_errors=True)

    def _fill(self, uid: int, texts: Mapping[str, str], wheels: Sequence[Path]) -> str:
        sweep(Path(tempfile.gettempdir()), _PLACE)
        made = tempfile.mkdtemp(prefix=_PREFIX)
        (Path(made) / "wheels").mkdir()
        for name, text in texts.items():
            (Path(made) / name).write_text(text)
        for wheel in wheels:
            shutil.copyfile(wheel, Path(made) / "wheels" / wheel.name)
        for path in (Path(made), *Path(made).rglob("*")):
            self._give(path, uid)
        return made

    def own(self, user: str, uid: int) -> None:
        """The user's directory below the root; others may pass through it to what is public."""
        self.root.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (self.root / user).mkdir(mode=0o755)
            self._give(self.root / user, uid)

    def _give(self, path: Path, uid: int) -> None:
        if os.geteuid() == 0 and (owner := uid or self._uid_of_nobody):
            os.chown(path, owner, owner, follow_symlinks=False)

    def _identity(self, uid: int) -> dict[str, Any]:
        """Raises Failed rather than to run as root, for who has no uid, what authors of packages wrote."""
        owner = uid or self._uid_of_nobody
        if self._pods and not owner:
            raise Failed("you have no uid, and nothing is built as root; ask an operator for one")
        if os.geteuid() != 0 or not owner:
            return {}
        return {"user": owner, "group": owner, "extra_groups": ()}

    def _variables(self, user: str, place: Path) -> dict[str, str]:
        programs = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
        return {
            **{name: os.environ[name] for name in _PASSED if name in os.environ},
            "PATH": os.pathsep.join(programs),
            "HOME": str(place),
            "TMPDIR": str(place),
            "LANG": "C.UTF-8",
            "HAIENV_HOME": str(self.root),
            "HAIENV_USER": user,
        }


def error_of(lines: Sequence[str]) -> str:
    """Its error from the first line to the last, as uv tells why in many; of another program the last line."""
    spoken = [line.rstrip() for line in lines if line.strip()]
    errors = [i for i, line in enumerate(spoken) if line.startswith(_ERROR)]
    if not errors:
        return spoken[-1].strip() if spoken else ""
    return "\n".join(spoken[errors[-1] :]).removeprefix(_ERROR)


async def _lines(process: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """Lines as they come; what is longer than a line may be is cut."""
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
