"""`make bench`: run every bench_*.py beside this file, show a table, write bench.json.

python -m tests.bench [NAME …]      # only modules whose name contains one of these; the other figures stay
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from tests.bench.figures import Figure

HERE = Path(__file__).parent


def main(wanted: list[str]) -> int:
    figures: list[Figure] = []
    for path in sorted(HERE.glob("bench_*.py")):
        if wanted and not any(word in path.stem for word in wanted):
            continue
        print(f"… {path.stem}", file=sys.stderr, flush=True)
        for figure in importlib.import_module(f"tests.bench.{path.stem}").figures():
            figures.append(figure)
            print(_line(figure), flush=True)
    _keep(figures, Path("bench.json"), everything=not wanted)
    return 0 if all(f.ok for f in figures) else 1


def _keep(figures: list[Figure], path: Path, *, everything: bool) -> None:
    before = [] if everything or not path.exists() else json.loads(path.read_text())
    known = {figure["name"]: figure for figure in before}
    known.update({figure.name: figure.as_dict() for figure in figures})
    path.write_text(json.dumps(list(known.values()), indent=2) + "\n")


def _line(figure: Figure) -> str:
    sign = ">=" if figure.at_least else "<="
    bar = f"  (bar {sign} {figure.bar:g})" if figure.bar is not None else ""
    return (
        f"{'ok ' if figure.ok else 'BAD'} {figure.name:<58} {figure.value:12.4g} {figure.unit}{bar}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
