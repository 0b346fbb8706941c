"""Logs are read backwards page by page: the pages together are the log, and each `begin` also reads forwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.logs.lines import LogLine, stamp
from hai_backend.logs.store import LogStore


@dataclass(frozen=True, slots=True)
class Key:
    task_id: int = 1
    run: int = 1
    rank: int = 0


def write(store: LogStore, key: Key, time: float, text: str, size: int = 0) -> None:
    data = stamp(time) + text.encode() + b"." * size + b"\n"
    store.append(key, store.size(key), data)


def forward(store: LogStore, cursor: str = "", **wanted: int) -> list[LogLine]:
    found: list[LogLine] = []
    while True:
        lines, cursor = store.read(1, cursor=cursor, max_bytes=1, **wanted)  # type: ignore[arg-type]
        if not lines:
            return found
        found += lines


def pages(store: LogStore, **wanted: int) -> list[tuple[list[LogLine], str, str]]:
    """Return all pages, the last page first."""
    found = []
    page = store.read_back(1, max_bytes=1, **wanted)  # type: ignore[arg-type]
    while page[0]:
        found.append(page)
        page = store.read_back(1, max_bytes=1, cursor=page[1], **wanted)  # type: ignore[arg-type]
    return found


prints = st.lists(
    st.tuples(
        st.integers(1, 3), st.integers(0, 2), st.sampled_from([0, 9_000, 60_000]), st.booleans()
    ),
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(prints)
def test_the_pages_are_the_log(printed: list[tuple[int, int, int, bool]]) -> None:
    with TemporaryDirectory() as root:
        store, time = LogStore(Path(root), 1 << 30, segment_bytes=100_000), 0.0
        for number, (run, rank, size, later) in enumerate(sorted(printed, key=lambda p: p[0])):
            time += later
            write(store, Key(1, run, rank), time, f"{run} {rank} {number} ", size)
        whole, found = forward(store), pages(store)
        together = [line for lines, _, _ in reversed(found) for line in lines]
        assert [(x.run, x.time) for x in together] == [(x.run, x.time) for x in whole]
        assert sorted(map(repr, together)) == sorted(map(repr, whole))
        for number, (_, begin, _) in enumerate(found):
            later_ones = [x for lines, _, _ in reversed(found[: number + 1]) for x in lines]
            assert sorted(map(repr, forward(store, begin))) == sorted(map(repr, later_ones))
        if found:
            assert forward(store, found[0][2]) == []


def test_a_long_log_is_read_in_pages_of_bounded_size(tmp_path: Path) -> None:
    store = LogStore(tmp_path, 1 << 30)
    for number in range(60):
        write(store, Key(), number, f"{number}", 20_000)
    found = pages(store)
    assert len(found) > 5
    assert max(sum(len(x.text) for x in lines) for lines, _, _ in found) <= 128 * 1024


def test_one_run_and_some_ranks(tmp_path: Path) -> None:
    store = LogStore(tmp_path, 1 << 30)
    for run in (1, 2):
        for rank in range(3):
            write(store, Key(1, run, rank), run, f"{run}.{rank}")
    (lines, _, _), *rest = pages(store, run=1, ranks=(0, 2))
    assert [x.text for x in lines] == ["1.0", "1.2"]
    assert rest == []


async def test_what_is_printed_after_the_last_page_comes_once(tmp_path: Path) -> None:
    store = LogStore(tmp_path, 1 << 30)
    write(store, Key(1, 1), 1, "first run")
    write(store, Key(1, 2), 2, "second run")
    _, _, end = store.read_back(1)
    half = stamp(3) + b"half"
    store.append(Key(1, 2), store.size(Key(1, 2)), half)
    lines, _, same = store.read_back(1)
    assert ([x.text for x in lines], same) == (["first run", "second run"], end)
    store.append(Key(1, 2), store.size(Key(1, 2)), b" and half\n")
    write(store, Key(1, 1), 4, "a late line of the first run")
    assert [x.text for x in forward(store, end)] == [
        "a late line of the first run",
        "half and half",
    ]


def test_no_log_has_no_page(tmp_path: Path) -> None:
    store = LogStore(tmp_path, 1 << 30)
    lines, begin, end = store.read_back(1)
    assert (lines, begin) == ([], "")
    write(store, Key(), 1, "now")
    assert [x.text for x in forward(store, end)] == ["now"]
