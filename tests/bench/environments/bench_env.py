"""Environments: create, extend, list, activate; compared with `python -m venv` and pip, and `uv venv` and `uv pip`.

The cache of wheels is warm: missing wheels are downloaded first. Times are medians. All tools take turns, so that other
load affects all equally.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.figures import Figure

PACKAGES = ("numpy", "pandas", "scikit-learn")
ROUNDS = 3
USERS, EACH = 100, 5


@dataclass(frozen=True, slots=True)
class Cost:
    """The seconds of one command, with all processes that it started."""

    wall: float
    cpu: float


def figures() -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    place = Path(tempfile.mkdtemp(prefix="hai-bench-env-"))
    try:
        yield from _figures(place)
    finally:
        for folder, _, _ in os.walk(place):
            os.chmod(folder, 0o700)
        shutil.rmtree(place)


def _figures(place: Path) -> Iterator[Figure]:
    env = _environ(place)
    _warm(place, env)
    yield from _creating(place, env)
    yield from _extending(env)
    yield from _disk(place, env)
    yield from _packing(place, env)
    yield from _listing(place, env)
    yield from _entering(env)


def _environ(place: Path) -> dict[str, str]:
    own = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "HF_ENV_NAME")
    }
    return {
        **own,
        "PATH": f"{Path(sys.executable).parent}:{own['PATH']}",
        "HAIENV_HOME": str(place / "root"),
        "HAIENV_USER": "ann",
        "HAI_CONFIG": str(place / "no-profile.toml"),
        "UV_CACHE_DIR": str(place / "cache"),
        "PIP_CACHE_DIR": str(place / "pip"),
        "PYTHONPYCACHEPREFIX": str(place / "bytecode"),
        "XDG_CACHE_HOME": str(place / "kept"),
    }


def _warm(place: Path, env: dict[str, str]) -> None:
    """Fill both caches, and a directory of wheels that all tools use, so that no time is spent on the network."""
    wheels = place / "wheels"
    _run([sys.executable, "-m", "pip", "download", "-q", "-d", str(wheels), *PACKAGES], env)
    env |= {"UV_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1", "UV_OFFLINE": "1"}
    env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    for name in ("warm", "warm2"):
        _run(_haienv("create", name, "--no_extend", *PACKAGES), env)
    _run(_haienv("remove", "warm", "warm2", "--yes"), env)


def _haienv(*words: str) -> list[str]:
    return [str(Path(sys.executable).parent / "haienv"), *words]


def _creating(place: Path, env: dict[str, str]) -> Iterator[Figure]:
    rounds = range(ROUNDS)
    empty = [_cost(_haienv("create", f"e{n}", "--no_extend"), env) for n in rounds]
    for n in rounds:
        _run(_haienv("remove", f"e{n}", "--yes"), env)
    ours, uv, pip = [], [], []
    for n in rounds:
        ours.append(_cost(_haienv("create", "full", "--no_extend", *PACKAGES), env))
        _run(_haienv("remove", "full", "--yes"), env)
        uv.append(_sum(_uv(place / f"uv{n}"), env))
        if n == 0:
            pip.append(_sum(_pip(place / "venv"), env))
    yield Figure("env create empty: wall", _wall(empty), "s", 0.5)
    yield Figure("env create empty: CPU", _cpu(empty), "s")
    yield Figure(f"env create {'+'.join(PACKAGES)}: wall", _wall(ours), "s", 3.0)
    yield Figure(f"env create {'+'.join(PACKAGES)}: CPU", _cpu(ours), "s")
    yield Figure("uv venv + uv pip install of them: wall", _wall(uv), "s")
    yield Figure("uv venv + uv pip install of them: CPU", _cpu(uv), "s")
    yield Figure("python -m venv + pip install of them: wall", _wall(pip), "s")
    yield Figure("python -m venv + pip install of them: CPU", _cpu(pip), "s")
    yield Figure("env create, times faster than pip: wall", _wall(pip) / _wall(ours), "x", 5, True)
    yield Figure("env create, times faster than pip: CPU", _cpu(pip) / _cpu(ours), "x", 5, True)
    yield Figure("env create against bare uv: wall", _wall(ours) / _wall(uv), "x", 1.3)
    yield Figure("env create against bare uv: CPU", _cpu(ours) / _cpu(uv), "x", 1.3)


def _uv(target: Path) -> list[list[str]]:
    return [
        ["uv", "venv", "-q", str(target)],
        ["uv", "pip", "install", "-q", "-p", str(target), *PACKAGES],
    ]


def _pip(target: Path) -> list[list[str]]:
    python = str(target / "bin" / "python")
    return [
        [sys.executable, "-m", "venv", str(target)],
        [python, "-m", "pip", "install", "-q", *PACKAGES],
    ]


def _extending(env: dict[str, str]) -> Iterator[Figure]:
    _run(_haienv("create", "base", "--no_extend", "numpy"), env)
    extending = []
    for _ in range(ROUNDS):
        extending.append(_cost(_haienv("create", "top", "--extend", "base", "pandas"), env))
        _run(_haienv("remove", "top", "--yes"), env)
    yield Figure("env extend a base by pandas: least wall", _least(extending), "s", 1.0)
    yield Figure("env extend a base by pandas: CPU", _cpu(extending), "s")


def _disk(place: Path, env: dict[str, str]) -> Iterator[Figure]:
    """Yield the disk space of a second environment, which differs in one small package and so has its own layer."""
    root = place / "root" / "ann" / ".layers"
    _run(_haienv("create", "first", "--no_extend", *PACKAGES), env)
    first = _blocks(root) - _blocks_of("base", env)
    before = _blocks(root)
    _run(_haienv("create", "second", "--no_extend", *PACKAGES, "threadpoolctl"), env)
    yield Figure(
        "env second like the first: more disk", 100 * (_blocks(root) - before) / first, "%", 5
    )


def _packing(place: Path, env: dict[str, str]) -> Iterator[Figure]:
    """Yield the costs of packing an environment, and of unpacking it on the disk of a node."""
    packed = _cost(_haienv("pack", "first"), env)
    layer = _which("first", env).parent.parent
    disk = place / "disk"
    disk.mkdir()
    asked = {"root": env["HAIENV_HOME"], "place": str(disk), "limit": 1 << 40}
    order = json.dumps({**asked, "layers": [["ann", layer.name]]})
    unpack = [sys.executable, "-I", "-m", "hai_backend.environments.unpack", order]
    first, again = _cost(unpack, env), _cost(unpack, env)
    size = (layer / "image.tar.zst").stat().st_size / 1e6
    yield Figure("env pack of the same: CPU", packed.cpu, "s")
    yield Figure("env pack of the same: image", size, "MB")
    yield Figure("env unpacked onto a node's disk: wall", first.wall, "s")
    yield Figure("env unpacked onto a node's disk: CPU", first.cpu, "s")
    yield Figure("env that is there already: CPU", again.cpu, "s")


def _which(name: str, env: dict[str, str]) -> Path:
    done = subprocess.run(
        _haienv("which", name, "--pinned"), env=env, capture_output=True, text=True
    )
    return Path(done.stdout.strip())


def _blocks_of(name: str, env: dict[str, str]) -> int:
    return _blocks(_which(name, env).parent.parent)


def _blocks(folder: Path) -> int:
    """Return the bytes on disk. A file with several links counts once."""
    done = subprocess.run(
        ["du", "-s", "-B1", str(folder)], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[0])


def _listing(place: Path, env: dict[str, str]) -> Iterator[Figure]:
    root = place / "many"
    _run(
        _haienv("create", "e0", "--no_extend"),
        {**env, "HAIENV_HOME": str(root), "HAIENV_USER": "u0"},
    )
    source = root / "u0"
    for user in range(USERS):
        for n in range(EACH):
            target = root / f"u{user}" / f"e{n}"
            if not target.exists():
                shutil.copytree(source / "e0", target, symlinks=True)
        layers = root / f"u{user}" / ".layers"
        if not layers.exists():
            shutil.copytree(source / ".layers", layers, symlinks=True)
    env = {**env, "HAIENV_HOME": str(root)}
    costs = [_cost(_haienv("list", "--json"), env) for _ in range(4 * ROUNDS)]
    yield Figure(
        f"env list of {USERS * EACH} in {USERS} directories: least wall", _least(costs), "s", 0.5
    )
    yield Figure(f"env list of {USERS * EACH} in {USERS} directories: CPU", _cpu(costs), "s")


def _entering(env: dict[str, str]) -> Iterator[Figure]:
    command = _haienv()[0]
    for shell in ("bash", "zsh", "fish"):
        if shutil.which(shell) is None:
            continue
        source = f"source {command}{'.fish' if shell == 'fish' else ''} base"
        flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
        nothing = {**env, "XDG_CACHE_HOME": "/dev/null"}  # so that nothing can be cached
        turns = [
            (
                _cost([shell, *flags, "-c", "true"], env),
                _cost([shell, *flags, "-c", source], nothing),
                _cost([shell, *flags, "-c", source], env),
            )
            for _ in range(15)
        ]
        plain, first, again = (list(costs) for costs in zip(*turns, strict=True))
        for what, costs in (("the first time", first), ("again", again)):
            name = f"env activation in {shell}, {what}"
            wall, cpu = _least(costs) - _least(plain), _cpu(costs) - _cpu(plain)
            yield Figure(f"{name}: least wall added", wall * 1000, "ms", 100)
            yield Figure(f"{name}: CPU added", cpu * 1000, "ms")


def _run(command: Sequence[str], env: dict[str, str]) -> None:
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _cost(command: Sequence[str], env: dict[str, str]) -> Cost:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _run(command, env)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _sum(commands: Sequence[Sequence[str]], env: dict[str, str]) -> Cost:
    costs = [_cost(command, env) for command in commands]
    return Cost(sum(c.wall for c in costs), sum(c.cpu for c in costs))


def _wall(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.wall for cost in costs)


def _cpu(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.cpu for cost in costs)


def _least(costs: Sequence[Cost]) -> float:
    """Return the least wall time. Other load only adds to the time of a short command."""
    return min(cost.wall for cost in costs)
