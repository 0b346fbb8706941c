"""`make bench`: run every bench_*.py beside this file, show a table, write bench.json.

python -m tests.bench [NAME …]      # only modules whose name contains one of these
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
    Path("bench.json").write_text(json.dumps([f.as_dict() for f in figures], indent=2) + "\n")
    return 0 if all(f.ok for f in figures) else 1


def _line(figure: Figure) -> str:
    sign = ">=" if figure.at_least else "<="
    bar = f"  (bar {sign} {figure.bar:g})" if figure.bar is not None else ""
    return (
        f"{'ok ' if figure.ok else 'BAD'} {figure.name:<58} {figure.value:12.4g} {figure.unit}{bar}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
