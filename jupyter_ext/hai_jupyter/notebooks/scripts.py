"""Converts notebooks to scripts.

The parser of IPython finds the lines that only IPython understands (`%magic`, `!command`, `help?`). They are listed,
written as comments, or written as the calls that they stand for.
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
_tokenize: Any = ipython.make_tokens_by_line  # IPython has no annotations
_convert_cell_magic: Any = ipython.cell_magic


@dataclass(frozen=True, slots=True)
class Special:
    """A line of a cell that is not Python. Cells and lines are counted from 1."""

    cell: int
    line: int
    text: str


def find_specials(notebook: Any) -> list[Special]:
    """Return all lines that are not Python, in order."""
    specials = []
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code":
            _, lines = _rewrite(cell.source, "skip")
            specials += [Special(number, line, text) for line, text in lines]
    return specials


def to_script(notebook: Any, choice: Choice) -> str:
    """Return a script with cells in the form `# %%`, texts as comments. Raises Invalid for other languages."""
    language = notebook.metadata.get("kernelspec", {}).get("language", "python")
    if language != "python":
        raise invalid(
            ("path", f"only notebooks in Python can be scripts; this one is in {language}")
        )
    parts = [_convert_cell(cell, choice) for cell in notebook.cells if cell.source.strip()]
    calls_ipython = choice == "convert" and bool(find_specials(notebook))
    head = "from IPython import get_ipython\n\n" if calls_ipython else ""
    return head + "\n\n".join(parts) + "\n"


def _convert_cell(cell: Any, choice: Choice) -> str:
    if cell.cell_type == "code":
        return f"# %%\n{_rewrite(cell.source, choice)[0].rstrip()}"
    return f"# %% [markdown]\n{_comment_out(cell.source.splitlines())}"


def _rewrite(source: str, choice: Choice) -> tuple[str, list[tuple[int, str]]]:
    """Return the cell as Python, and line number and text of each line that was not."""
    lines = [f"{line}\n" for line in source.splitlines()]
    head = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines and lines[head].startswith("%%"):
        specials = [(head + 1, lines[head].strip())]
        if choice == "skip":
            return _comment_out(lines), specials
        return "".join(_convert_cell_magic(lines[head:])), specials
    specials, removed = [], 0
    while (match := _first_special(lines)) is not None:
        after = match.transform(lines)
        start, count = match.start_line, len(lines) - len(after) + 1
        old = lines[start : start + count]
        specials.append((start + 1 + removed, old[0].strip()))
        if choice == "skip":  # `pass` replaces a line that may be the only statement of a block
            indent = old[0][: len(old[0]) - len(old[0].lstrip())]
            after[start : start + 1] = [
                f"{indent}pass  # {' '.join(line.strip() for line in old)}\n"
            ]
        lines, removed = after, removed + count - 1
    return "".join(lines), specials


def _first_special(lines: list[str]) -> Any:
    tokens = _tokenize(lines)
    matches = [match for kind in _FINDERS if (match := kind.find(tokens)) is not None]
    return min(matches, key=lambda match: match.start_line, default=None)


def _comment_out(lines: Sequence[str]) -> str:
    return "\n".join(f"# {line.rstrip()}".rstrip() for line in lines)
