"""`make bench`: run every bench_*.py below this directory, print a table, and write bench.json.

python -m tests.bench [NAME …]      # only modules whose name contains a NAME; bench.json keeps the other figures
python -m tests.bench wide          # the modules about clusters with thousands of nodes and hundreds of people
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from tests.bench.figures import Figure

HERE = Path(__file__).parent
GROUPS = {"wide": ["bench_watch"]}  # names of modules, by what may be given instead


def main(names: list[str]) -> int:
    figures: list[Figure] = []
    names = [module for name in names for module in GROUPS.get(name, [name])]
    for path in sorted(HERE.rglob("bench_*.py")):
        if names and not any(name in path.stem for name in names):
            continue
        module = ".".join(path.relative_to(HERE.parents[1]).with_suffix("").parts)
        print(f"… {path.stem}", file=sys.stderr, flush=True)
        for figure in importlib.import_module(module).figures():
            figures.append(figure)
            print(_line(figure), flush=True)
    _save(figures, Path("bench.json"), replace=not names)
    return 0 if all(f.ok for f in figures) else 1


def _save(figures: list[Figure], path: Path, *, replace: bool) -> None:
    before = [] if replace or not path.exists() else json.loads(path.read_text())
    by_name = {figure["name"]: figure for figure in before}
    by_name.update({figure.name: figure.as_dict() for figure in figures})
    path.write_text(json.dumps(list(by_name.values()), indent=2) + "\n")


def _line(figure: Figure) -> str:
    sign = ">=" if figure.at_least else "<="
    bar = f"  (bar {sign} {figure.bar:g})" if figure.bar is not None else ""
    return (
        f"{'ok ' if figure.ok else 'BAD'} {figure.name:<58} {figure.value:12.4g} {figure.unit}{bar}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
