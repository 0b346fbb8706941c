"""Workspaces compared with rsync, unison and Syncthing: first push, no change, changes, latency, memory.

Uses 20 000 files of 200 MB in all (half text, half random), one file of 1 GiB, saves under `watch`, and a push of
200 000 files for its memory. All peers take turns, in new directories. Each result is compared with its source.
Figures are medians of five runs. HAI_BENCH_REPS sets another number of runs, and HAI_BENCH_SCALE scales the sizes.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from tests.bench.figures import Figure, environment
from tests.bench.sync.sync_peers import PROGRAM, Peer, installed, lsyncd, ours, rsync, unison
from tests.bench.sync.syncthing_peer import syncthing
from tests.support.servers import server_process

REPS = int(os.environ.get("HAI_BENCH_REPS", "5"))
SCALE = float(os.environ.get("HAI_BENCH_SCALE", "1"))
FILES, TREE_BYTES, BIG_BYTES = int(20_000 * SCALE), int(200e6 * SCALE), int((1 << 30) * SCALE)
MANY = int(200_000 * SCALE)
CHANGED = 100
DURABLE = "rsync to disk"
Opener = Callable[[Path, Path], AbstractContextManager[Peer]]
Times = dict[str, dict[str, list[float]]]


def figures() -> Iterator[Figure]:
    """Yield the figures. Peers that are not installed are left out."""
    peers: dict[str, Opener] = {"ours": ours}
    known = (("rsync", rsync), ("unison", unison), ("syncthing", syncthing))
    peers |= {name: peer for name, peer in known if installed(name)}
    for name, _ in known:
        if name not in peers:
            print(f"{name} is left out: it is not installed", file=sys.stderr)
    if "rsync" in peers:
        peers[DURABLE] = partial(rsync, durable=True)
    with tempfile.TemporaryDirectory(prefix="hai-bench-sync-") as folder:
        work = Path(folder)
        make_tree(work / "tree", FILES, TREE_BYTES)
        tree = _runs(work, work / "tree", peers, change_tree)
        yield from _tree_figures(tree)
        yield from _daemon_figures(work)
        make_big(work / "big", BIG_BYTES)
        yield from _big_figures(work, peers)
        yield from _memory(work)


def make_tree(root: Path, files: int, total: int) -> None:
    """Write small files of log-normal size, half of them text."""
    rng = random.Random(1)
    sizes = [rng.lognormvariate(0, 1.0) for _ in range(files)]
    unit = total / sum(sizes)
    words = [
        "import",
        "torch",
        "train",
        "model",
        "loss",
        "batch",
        "epoch",
        "step",
        "data",
        "config",
        "gpu",
        "return",
        "def",
    ]
    text = " ".join(rng.choice(words) for _ in range(60_000)).encode()
    for number, size in enumerate(sizes):
        length = max(16, int(size * unit))
        folder = root / f"pkg{number % 40:02d}" / f"mod{number // 40 % 25:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        begin = rng.randrange(len(text) - 1)
        body = rng.randbytes(length) if number % 2 else (text[begin:] + text * 9)[:length]
        (folder / f"f{number:06d}.{'bin' if number % 2 else 'py'}").write_bytes(body)


def make_big(root: Path, size: int) -> None:
    """Write one random file."""
    rng = random.Random(2)
    root.mkdir()
    with (root / "ckpt.bin").open("wb") as file:
        for _ in range(max(1, size >> 20)):
            file.write(rng.randbytes(1 << 20))


def change_tree(root: Path, seed: int) -> None:
    """Insert 64 bytes in the middle of a hundred files."""
    rng = random.Random(seed)
    files = sorted(p for p in root.rglob("*") if p.is_file() and ".hfai" not in p.parts)
    for path in rng.sample(files, min(CHANGED, len(files))):
        body = path.read_bytes()
        path.write_bytes(body[: len(body) // 2] + rng.randbytes(64) + body[len(body) // 2 :])


def change_big(root: Path, seed: int) -> None:
    """Insert 4 KiB near the beginning of the file."""
    path, new = root / "ckpt.bin", root / ".hfai-new"
    with path.open("rb") as old, new.open("wb") as out:
        out.write(old.read(1 << 20) + random.Random(seed).randbytes(4096))
        shutil.copyfileobj(old, out, 1 << 20)
    new.replace(path)


def digests(root: Path) -> dict[str, str]:
    """Return the digest of every file by path."""
    found = {}
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name != ".hfai"]
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                digest = hashlib.file_digest(file, "blake2b").hexdigest()
            found[os.path.relpath(os.path.join(folder, name), root)] = digest
    return found


def _runs(
    work: Path,
    pristine: Path,
    peers: dict[str, Opener],
    change: Callable[[Path, int], None],
    *,
    keep: bool = True,
) -> Times:
    """Return wall and CPU seconds by peer and phase.

    If there are many files, keep them: to reuse freed inodes costs time in the next run (see sync_peers.py).
    """
    times: Times = {name: {} for name in peers}
    for rep in range(REPS):
        for name, opener in peers.items():
            run = work / f"{pristine.name}-{name}-{rep}"
            source = run / "here"
            shutil.copytree(pristine, source)
            time.sleep(2.1)  # so that file times are trusted, as with older files of a user
            with opener(source, run) as peer:
                _phases(peer, source, rep, change, times[name])
            if not keep:
                shutil.rmtree(run)
    return times


def _phases(
    peer: Peer,
    source: Path,
    rep: int,
    change: Callable[[Path, int], None],
    times: dict[str, list[float]],
) -> None:
    """Time a first sync, one without changes, and one after a change. Raises RuntimeError if the sides differ."""
    for phase in ("first", "nothing", "change"):
        if phase == "change":
            change(source, rep)
        wall, cpu = peer.timed()
        times.setdefault(phase, []).append(wall)
        times.setdefault(phase + " cpu", []).append(cpu)
    if digests(source) != digests(peer.target):
        raise RuntimeError(f"{peer.name}: the sides differ")


def _medians(times: Times) -> dict[str, dict[str, float]]:
    return {
        name: {phase: statistics.median(values) for phase, values in phases.items()}
        for name, phases in times.items()
    }


def _side_by_side(
    what: str, times: Times, phases: dict[str, tuple[str, float | None]]
) -> Iterator[Figure]:
    medians = _medians(times)
    for phase, (words, bar) in phases.items():
        for name, mine in medians.items():
            yield Figure(f"{what} {words}, {name}, wall", mine[phase], "s")
            yield Figure(f"{what} {words}, {name}, CPU of both sides", mine[f"{phase} cpu"], "s")
        for name, most in (("rsync", bar), (DURABLE, None)):
            if name in medians:
                ratio = medians["ours"][phase] / medians[name][phase]
                yield Figure(f"{what} {words}, ours / {name}, wall", ratio, "x", most)


def _tree_figures(times: Times) -> Iterator[Figure]:
    phases: dict[str, tuple[str, float | None]] = {
        "first": ("first push", None),  # on loopback; users have slower links
        "nothing": ("nothing changed", None),
        "change": ("100 files changed", None),
    }
    yield from _side_by_side(f"{FILES} files", times, phases)


def _big_figures(work: Path, peers: dict[str, Opener]) -> Iterator[Figure]:
    names = ("ours", "rsync", DURABLE)  # the others would take minutes
    chosen = {name: peers[name] for name in names if name in peers}
    times = _runs(work, work / "big", chosen, change_big, keep=False)
    phases: dict[str, tuple[str, float | None]] = {
        "first": ("first push", 1.5),
        "change": ("4 KiB inserted", 0.5),
    }
    yield from _side_by_side("1 GiB", times, phases)
    yield from _wire(work)


def _wire(work: Path) -> Iterator[Figure]:
    """Yield the megabytes that a push sends after an insertion into a large file."""
    run = work / "wire"
    source = run / "here"
    shutil.copytree(work / "big", source)
    with server_process() as server:
        env = {**environment(server.profile()), "XDG_DATA_HOME": str(run / "data")}

        def push() -> int:
            done = subprocess.run(
                [PROGRAM, "push", "--json"], cwd=source, env=env, capture_output=True, check=True
            )
            return int(done.stdout.rpartition(b'"wire_bytes": ')[2].rstrip(b"}\n"))

        subprocess.run([PROGRAM, "init", "w"], cwd=source, env=env, check=True, capture_output=True)
        push()
        change_big(source, 1)
        yield Figure("1 GiB 4 KiB inserted, bytes sent", push() / 1e6, "MB", 5.0)


def _daemon_figures(work: Path) -> Iterator[Figure]:
    run = work / "daemon"
    source = run / "here"
    shutil.copytree(work / "tree", source)
    with ours(source, run, daemon=True) as peer:
        peer.sync()
        pushes = [peer.timed()[0] for _ in range(max(REPS, 9))]
        yield Figure("nothing changed, with the daemon", statistics.median(pushes) * 1000, "ms", 50)
        latency = statistics.median(latencies(source, peer.target))
        yield Figure("save to cluster under watch, median", latency * 1000, "ms", 150)
    if installed("lsyncd"):
        run = work / "lsyncd"
        source = run / "here"
        shutil.copytree(work / "tree", source)
        with lsyncd(source, run) as peer:
            found = statistics.median(latencies(source, peer.target)[:5])
            yield Figure("save to the other side, lsyncd, median", found * 1000, "ms")


def latencies(source: Path, target: Path) -> list[float]:
    """Return the seconds from each save to the bytes on the other side."""
    found = []
    files = sorted(source.rglob("*.py"))
    for number in range(15):
        path = files[number * 37 % len(files)]
        body = path.read_bytes()[:2000] + f"\n# edit {time.time_ns()}\n".encode()
        began = time.perf_counter()
        path.write_bytes(body)
        other = target / path.relative_to(source)
        while other.read_bytes() != body and time.perf_counter() - began < 30:
            time.sleep(0.002)
        found.append(time.perf_counter() - began)
        time.sleep(0.3)
    return found


_MEASURED = """
import resource, sys
from hai_sync.cli.main import main
code = main(sys.argv[1:])
print("RSS", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(code)
"""


def _memory(work: Path) -> Iterator[Figure]:
    """Yield the client's peak memory in a first push of many files, and in a push without changes."""
    run = work / "many"
    source = run / "here"
    make_tree(source, MANY, MANY * 100)
    with server_process() as server:
        env = {**environment(server.profile()), "XDG_DATA_HOME": str(run / "data")}
        subprocess.run([PROGRAM, "init", "w"], cwd=source, env=env, check=True, capture_output=True)
        for words in ("first push", "nothing changed"):
            done = subprocess.run(
                [sys.executable, "-c", _MEASURED, "push"],
                cwd=source,
                env=env,
                capture_output=True,
                check=True,
            )
            size = int(done.stdout.split()[-1]) / 1024
            yield Figure(f"memory of {MANY} files, {words}", size, "MiB", 300)
