"""A log that exceeded its limit reports before its first line how much was dropped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.logs import segments
from hai_backend.logs.dropped import Dropped, drop
from hai_backend.logs.lines import stamp
from hai_backend.logs.store import LogStore

NOTICE = "[hai] {} before this line are not kept: the log of a rank keeps its newest part"


@dataclass(frozen=True, slots=True)
class Key:
    task_id: int = 1
    run: int = 1
    rank: int = 0


def fill(root: Path, lines: int, key: Key = Key(), *, begin: int = 0) -> LogStore:
    """Return a store with at most 4000 bytes per rank. Each line contains its number and has 34 bytes."""
    store = LogStore(root, 4000, segment_bytes=1000)
    for number in range(begin, lines):
        store.append(key, store.size(key), stamp(number) + f"{number:05}\n".encode())
    return store


def texts(store: LogStore, **wanted: int) -> list[str]:
    return [line.text for line in store.read(1, **wanted)[0]]  # type: ignore[arg-type]


def pages(store: LogStore) -> list[str]:
    """Return all lines, read page by page from the end."""
    found: list[str] = []
    lines, begin, _ = store.read_back(1, max_bytes=1)
    while lines:
        found = [line.text for line in lines] + found
        lines, begin, _ = store.read_back(1, max_bytes=1, cursor=begin)
    return found


@pytest.mark.parametrize("lines", [1, 29, 30, 31, 90, 117, 118, 120, 300, 5000])
def test_the_first_line_counts_what_is_missing(tmp_path: Path, lines: int) -> None:
    store = fill(tmp_path, lines)
    found = texts(store)
    missing = lines - sum(text.isdigit() for text in found)
    notice = NOTICE.format(Dropped(missing * 34, missing))
    assert found == [notice] * bool(missing) + [f"{n:05}" for n in range(missing, lines)]
    assert pages(store) == found
    expected = {0: Dropped(missing * 34, missing)} if missing else {}
    assert store.dropped(1, 1) == expected


def test_a_page_that_begins_with_the_notice_reads_forward_again(tmp_path: Path) -> None:
    store = fill(tmp_path, 500)
    lines, begin, _ = store.read_back(1)
    assert lines[0].text.startswith("[hai] ")
    assert store.read(1, cursor=begin)[0] == lines
    assert store.read_back(1, cursor=begin)[0] == []


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        pytest.param({"tail_lines": 5}, False, id="the last lines"),
        pytest.param({"tail_lines": 100_000}, True, id="more lines than there are"),
        pytest.param({"since": 499.0}, False, id="since a time that the log still has"),
        pytest.param({"since": 3.0}, True, id="since a time before its first line"),
    ],
)
def test_only_who_asked_for_more_is_told(
    tmp_path: Path, wanted: dict[str, int], told: bool
) -> None:
    assert texts(fill(tmp_path, 500), **wanted)[0].startswith("[hai] ") is told


def test_a_follower_is_told_once_what_it_has_missed(tmp_path: Path) -> None:
    store = fill(tmp_path, 10)
    _, cursor = store.read(1)
    store = fill(tmp_path, 500, begin=10)
    lines, cursor = store.read(1, cursor=cursor)
    first = int(lines[1].text)
    assert lines[0].text == NOTICE.format(Dropped((first - 10) * 34, None))
    store.append(Key(), store.size(Key()), stamp(500) + b"00500\n")
    assert [line.text for line in store.read(1, cursor=cursor)[0]] == ["00500"]


def test_each_rank_and_run_has_its_own_count(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    fill(tmp_path, 10, Key(rank=1))
    store = fill(tmp_path, 200, Key(run=2))
    assert set(store.dropped(1, 1)) == {0}
    assert set(store.dropped(1, 2)) == {0}
    assert store.dropped(1, 3) == {}
    assert sum(text.startswith("[hai] ") for text in texts(store)) == 2


def test_a_log_that_an_older_server_has_cut_tells_bytes_only(tmp_path: Path) -> None:
    store = fill(tmp_path, 300)
    (tmp_path / "1" / "1" / "0.dropped").unlink()
    first = segments.scan(tmp_path / "1" / "1")[0][0].first
    assert texts(store)[0] == NOTICE.format(Dropped(first, None))
    store = fill(tmp_path, 600, begin=300)
    assert store.dropped(1, 1)[0].lines is None


@pytest.mark.parametrize("damage", [b"", b"x y\n", b"12\n"])
def test_a_damaged_count_tells_bytes_only(tmp_path: Path, damage: bytes) -> None:
    store = fill(tmp_path, 300)
    (tmp_path / "1" / "1" / "0.dropped").write_bytes(damage)
    assert store.dropped(1, 1)[0].lines is None
    assert fill(tmp_path, 600, begin=300).dropped(1, 1)[0].lines is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_a_crash_between_count_and_deletion_counts_nothing_twice(steps: list[int]) -> None:
    with TemporaryDirectory() as root:
        lines = 0
        for step in steps:
            store = fill(Path(root), lines + step, begin=lines)
            lines += step
            found = segments.scan(Path(root) / "1" / "1")[0]
            if len(found) > 1:
                kept = found[0].path.read_bytes()
                drop(Path(root) / "1" / "1", 0, found[0])
                found[0].path.write_bytes(kept)  # as if the server had ended before the deletion
                drop(Path(root) / "1" / "1", 0, found[0])
            numbers = [int(text) for text in texts(store) if text.isdigit()]
            missing = numbers[0] if numbers else lines
            assert store.dropped(1, 1).get(0, Dropped(0, 0)) == Dropped(missing * 34, missing)
