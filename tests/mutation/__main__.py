"""`make mutate`: make small errors in `hai_backend.scheduler`, one at a time, and check whether its tests notice.

python -m tests.mutation [--sample N] [--seed S] [--module NAME] [--json OUT] [--unseen JSON …] [--again JSON]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.mutation import trial
from tests.mutation.mutants import Mutant, mutants

_TESTS = ["tests/backend/scheduler"]
_EQUIVALENT = Path(__file__).parent / "equivalent.txt"
_WORKERS = 2
_BAR = 0.9

Row = dict[str, str]


def main() -> int:
    wanted = _arguments()
    everything = all_mutants()
    same = equivalents()
    if unknown := same.keys() - {mutant.name for mutant in everything}:
        sys.exit(f"no mutant in {_EQUIVALENT.name} is called\n  " + "\n  ".join(sorted(unknown)))
    rows = []
    for row in _run(_chosen(everything, wanted)):
        rows.append(row | ({"equivalent": same[row["name"]]} if row["name"] in same else {}))
        print(f"{len(rows):5} {row['outcome']:9} {row['name']}", file=sys.stderr, flush=True)
    if wanted.json:
        wanted.json.write_text(json.dumps({"seed": wanted.seed, "mutants": rows}, indent=1) + "\n")
    return _report(rows, len(everything))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--sample", type=int, default=10**9, help="so many, drawn from all alike")
    parser.add_argument("--seed", type=int, default=0, help="of the drawing")
    parser.add_argument("--module", default="", help="only of this module, such as `preempt`")
    parser.add_argument("--json", type=Path, help="write every mutant with its outcome")
    parser.add_argument("--unseen", type=Path, nargs="*", default=(), help="none of these reports")
    parser.add_argument("--again", type=Path, help="only those that survived in this report")
    return parser.parse_args()


def all_mutants() -> list[Mutant]:
    """Return all mutants of the current scheduler."""
    return [m for name, path in trial.SOURCES.items() for m in mutants(name, path.read_text())]


def equivalents() -> dict[str, str]:
    """Return the mutants that no test can notice, with the reasons."""
    found: dict[str, str] = {}
    name = ""
    for line in _EQUIVALENT.read_text().splitlines():
        if line.startswith(" "):
            found[name] = f"{found[name]} {line.strip()}".strip()
        elif line and not line.startswith("#"):
            name, found[line] = line, ""
    return found


def _chosen(left: list[Mutant], wanted: argparse.Namespace) -> list[Mutant]:
    seen = {row["name"] for path in wanted.unseen for row in _rows(path)}
    left = [m for m in left if wanted.module in ("", m.module) and m.name not in seen]
    if wanted.again:
        again = {row["name"] for row in _rows(wanted.again) if row["outcome"] == "survived"}
        left = [m for m in left if m.name in again]
    return random.Random(wanted.seed).sample(left, min(wanted.sample, len(left)))


def _rows(path: Path) -> list[Row]:
    found: list[Row] = json.loads(path.read_text())["mutants"]
    return found


def _run(chosen: list[Mutant]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as notes:
        passed = trial.passage(_TESTS, Path(notes))
        running: dict[int, Mutant] = {}
        for mutant in [*chosen, *[None] * _WORKERS]:
            if mutant is not None:
                running[trial.start(mutant, passed, Path(notes))] = mutant
            if running and (mutant is None or len(running) == _WORKERS):
                pid, found = trial.finish(Path(notes))
                done = running.pop(pid)
                yield {"name": done.name, "module": done.module} | found


def _report(rows: list[Row], total: int) -> int:
    """Print a line for each module. Return 1 if too many mutants survive, or a listed equivalent one is noticed."""
    print("module         mutants killed timeouts survived equivalent")
    for module in [*sorted({row["module"] for row in rows}), ""]:
        of = [row for row in rows if module in ("", row["module"])]
        by = Counter(row["outcome"] for row in of)
        same = sum("equivalent" in row for row in of)
        numbers = f"{len(of):7} {by['killed']:6} {by['timeout']:8} {by['survived']:8} {same:10}"
        print(f"{module or 'all':14} {numbers}")
    wrong = [r for r in rows if "equivalent" in r and r["outcome"] != "survived"]
    for row in wrong:
        print(f"not equivalent, {row.get('by')} tells it apart: {row['name']}")
    noticed = sum(row["outcome"] != "survived" for row in rows)
    differ = max(1, sum("equivalent" not in row for row in rows) + len(wrong))
    shares = (
        f"{noticed / max(1, len(rows)):.1%} noticed, {noticed / differ:.1%} of those that differ"
    )
    print(f"{len(rows)} of {total} mutants: {shares}")
    return int(noticed < _BAR * differ or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
