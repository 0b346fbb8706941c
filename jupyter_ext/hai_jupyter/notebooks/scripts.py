"""Notebooks as scripts. What only IPython understands (`%magic`, `!command`, `help?`) is found by IPython's own parser,
and listed, written as comments, or written as the calls that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from IPython.core import inputtransformer2 as ipython

from hai_jupyter.errors import invalid

Choice = Literal["skip", "convert"]
_FINDERS: tuple[Any, ...] = (
    *(ipython.MagicAssign, ipython.SystemAssign),
    *(ipython.EscapedCommand, ipython.HelpEnd),
)
_tokens: Any = ipython.make_tokens_by_line  # without annotations, as all of it
_whole: Any = ipython.cell_magic


@dataclass(frozen=True, slots=True)
class Special:
    """Something in a cell that is no Python."""

    cell: int
    line: int
    text: str


def specials(notebook: Any) -> list[Special]:
    """All of them, in order; numbers begin with 1."""
    found = []
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code":
            found += [Special(number, at, text) for at, text in _rewritten(cell.source, "skip")[1]]
    return found


def script(notebook: Any, choice: Choice) -> str:
    """Cells as most editors know them in scripts (`# %%`); texts are comments. Raises Invalid for other languages."""
    language = notebook.metadata.get("kernelspec", {}).get("language", "python")
    if language != "python":
        raise invalid(
            ("path", f"only notebooks in Python can be scripts; this one is in {language}")
        )
    parts = [_part(cell, choice) for cell in notebook.cells if cell.source.strip()]
    begin = "from IPython import get_ipython\n\n" if _calls(notebook, choice) else ""
    return begin + "\n\n".join(parts) + "\n"


def _calls(notebook: Any, choice: Choice) -> bool:
    return choice == "convert" and bool(specials(notebook))


def _part(cell: Any, choice: Choice) -> str:
    if cell.cell_type == "code":
        return f"# %%\n{_rewritten(cell.source, choice)[0].rstrip()}"
    return f"# %% [markdown]\n{_commented(cell.source.splitlines())}"


def _rewritten(source: str, choice: Choice) -> tuple[str, list[tuple[int, str]]]:
    """The cell without what is special, and where that was."""
    lines = [f"{line}\n" for line in source.splitlines()]
    head = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines and lines[head].startswith("%%"):
        told = [(head + 1, lines[head].strip())]
        return (_commented(lines) if choice == "skip" else "".join(_whole(lines[head:]))), told
    told, removed = [], 0
    while (found := _first(lines)) is not None:
        after = found.transform(lines)
        at, count = found.start_line, len(lines) - len(after) + 1
        old = lines[at : at + count]
        told.append((at + 1 + removed, old[0].strip()))
        if choice == "skip":  # a statement in its place: it may be all that a block has
            indent = old[0][: len(old[0]) - len(old[0].lstrip())]
            after[at : at + 1] = [f"{indent}pass  # {' '.join(line.strip() for line in old)}\n"]
        lines, removed = after, removed + count - 1
    return "".join(lines), told


def _first(lines: list[str]) -> Any:
    tokens = _tokens(lines)
    found = [each for kind in _FINDERS if (each := kind.find(tokens)) is not None]
    return min(found, key=lambda each: each.start_line, default=None)


def _commented(lines: Sequence[str]) -> str:
    return "\n".join(f"# {line.rstrip()}".rstrip() for line in lines)
