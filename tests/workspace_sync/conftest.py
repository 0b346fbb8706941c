"""Trees from one line of text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hai_sync.core.chunks import digest_of
from hai_sync.core.entry import DIRECTORY, Entry, Kind, Tree


def tree_of(text: str) -> Tree:
    """`a=1 b*=2 d/ d/x=3@9 l>a p!`: file, executable, directory, newer file, link, problem."""
    return dict(_item(word) for word in text.split())


def _item(word: str) -> tuple[str, Entry]:
    if word.endswith("/"):
        return word[:-1], DIRECTORY
    if word.endswith("!"):
        return word[:-1], Entry(Kind.PROBLEM, target="refused")
    if ">" in word:
        path, _, target = word.partition(">")
        return path, Entry(Kind.SYMLINK, target=target)
    path, _, content = word.partition("=")
    content, _, time = content.partition("@")
    digest = digest_of(content.encode())
    name = path.removesuffix("*")
    return name, Entry(Kind.FILE, digest, len(content), name != path, mtime_ns=int(time or 0))


@pytest.fixture
def tree() -> Callable[[str], Tree]:
    """The builder."""
    return tree_of
