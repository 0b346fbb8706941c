"""Generated wheels, a private root for each test, and a fixture that runs command lines in this process."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from haienv.cli.main import main
from haienv.store.layout import Home
from haienv.store.registry import Environment, read_environment

USER = "ann"


@dataclass(frozen=True)
class Result:
    """Exit code and output of a command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


@dataclass(frozen=True)
class Haienv:
    """Runs haienv for a user in a root."""

    home: Home
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, line: str, *more: str | Path) -> Result:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*shlex.split(line), *map(str, more)])
        return Result(code, out.getvalue(), err.getvalue())

    def ok(self, line: str, *more: str | Path) -> Result:
        result = self(line, *more)
        assert result.code == 0, result.err
        return result

    def get(self, name: str) -> Environment:
        found = read_environment(self.home, self.home.user, name)
        assert found is not None, f"no environment {name}"
        return found

    def run(self, name: str, code: str) -> str:
        """Run a Python program in an environment, and return its output."""
        python = self.get(name).path / "bin" / "python"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def as_user(self, user: str) -> Haienv:
        self.monkeypatch.setenv("HAIENV_USER", user)
        return Haienv(Home(self.home.root, user), self.monkeypatch)


@pytest.fixture
def haienv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheelhouse: Path, cache: Path
) -> Haienv:
    """haienv with a private root; packages come from the wheelhouse, never from the network."""
    root = tmp_path / "ro ot"  # paths may have blanks
    for name in ("HF_ENV_NAME", "HF_ENV_OWNER", "HAIENV_PY", "CONDA_PREFIX", "UV_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HAIENV_HOME", str(root))
    monkeypatch.setenv("HAIENV_USER", USER)
    monkeypatch.setenv("UV_FIND_LINKS", str(wheelhouse))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(cache))
    monkeypatch.setenv("HAI_CONFIG", str(tmp_path / "no-profile.toml"))
    return Haienv(Home(root, USER), monkeypatch)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small packages with dependencies, scripts and conflicts.

    fast 1.0 and 2.0; torchy is compiled and needs fast<2; tool has a console script; app needs tool and fast;
    greedy needs fast>=2.
    """
    directory = tmp_path_factory.mktemp("wheels")
    wheel(directory, "fast", "1.0")
    wheel(directory, "fast", "2.0")
    wheel(directory, "plain", "1.0")
    wheel(directory, "plain", "2.0")
    wheel(directory, "torchy", "1.0", requires=["fast"], compiled=True)
    wheel(directory, "tool", "1.0", script="tool")
    wheel(directory, "app", "1.0", requires=["tool", "fast"], script="app")
    wheel(directory, "greedy", "1.0", requires=["fast>=2"])
    return directory


def wheel(
    directory: Path,
    name: str,
    version: str,
    requires: Sequence[str] = (),
    script: str = "",
    compiled: bool = False,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write a wheel; its script prints the versions of the modules that it is given."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n\n\ndef main():\n    import sys, {name}\n"
        "    for word in sys.argv[1:]:\n        module = __import__(word)\n"
        "        print(word, module.VERSION)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {each}\n" for each in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if compiled:
        files[f"{name}/_core.cpython-311-x86_64-linux-gnu.so"] = "not really\n"
    if script:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n"
    files |= more
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        lines = [f"{f},sha256={_digest(t)},{len(t)}" for f, t in files.items()]
        archive.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,", ""]))
    return path


def _digest(text: str) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., Path]:
    """Writes more wheels, outside of the wheelhouse."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    return lambda *args, **kwargs: wheel(directory, *args, **kwargs)


@pytest.fixture
def other_python() -> str:
    """A Python of another minor version."""
    from shutil import which

    for minor in range(9, 16):
        for name in (*_pyenv(minor), f"python3.{minor}"):
            found = which(name)
            works = found and subprocess.run([found, "-V"], capture_output=True).returncode == 0
            if found and works and minor != sys.version_info.minor:
                return found
    pytest.skip("only one minor version of Python is installed")


def _pyenv(minor: int) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    return [str(path / "bin" / "python3") for path in sorted(root.glob(f"3.{minor}.*"))]


RUN = {
    "bash": ["bash", "--norc", "--noprofile"],
    "zsh": ["zsh", "-f"],
    "fish": ["fish", "--no-config"],
}


@pytest.fixture(scope="session")
def run_shell(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Runs a text in a shell without start-up files, with a private home directory."""
    home = str(tmp_path_factory.mktemp("home"))
    minimal = {"PATH": os.environ["PATH"], "HOME": home, "LC_ALL": "C.UTF-8", "TERM": "dumb"}

    def run(shell: str, text: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        command = [*RUN[shell], "-c", text]
        return subprocess.run(
            command, env={**minimal, **variables}, capture_output=True, timeout=60
        )

    return run


def digests(folder: Path) -> dict[str, str]:
    """Return the hashes of all files and the targets of all links in a folder."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() and "__pycache__" not in path.parts
    }


@pytest.fixture
def digest() -> Callable[[Path], dict[str, str]]:
    """Hashes a tree, to detect changes."""
    return digests
