"""Logs are appended at offsets and read by cursor. No line is lost or repeated, and sizes are limited."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.errors import Invalid, Unavailable
from hai_backend.logs import segments
from hai_backend.logs import store as store_module
from hai_backend.logs.lines import LogLine, stamp
from hai_backend.logs.store import LogStore


@dataclass(frozen=True, slots=True)
class Key:
    task_id: int = 1
    run: int = 1
    rank: int = 0


def line(time: float, text: str) -> bytes:
    return stamp(time) + text.encode() + b"\n"


def texts(lines: list[LogLine]) -> list[str]:
    return [entry.text for entry in lines]


def everything(store: LogStore, *, max_bytes: int = 1, **wanted: object) -> list[LogLine]:
    """Return all lines, read in answers of the smallest possible size."""
    lines, cursor = store.read(1, max_bytes=max_bytes, **wanted)  # type: ignore[arg-type]
    found = list(lines)
    wanted.pop("tail_lines", None)
    wanted.pop("since", None)
    while lines:
        lines, cursor = store.read(1, max_bytes=max_bytes, cursor=cursor, **wanted)  # type: ignore[arg-type]
        found += lines
    return found


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return LogStore(tmp_path, 1 << 30)


@pytest.mark.parametrize(
    ("offset", "data", "size", "kept"),
    [
        pytest.param(6, b"next\n", 11, b"first\nnext\n", id="at the end"),
        pytest.param(0, b"first\n", 6, b"first\n", id="the same again"),
        pytest.param(2, b"r", 6, b"first\n", id="a part again"),
        pytest.param(3, b"st\nnext\n", 11, b"first\nnext\n", id="overlapping: only what is new"),
        pytest.param(7, b"gap", 6, b"first\n", id="a gap answers where to go on"),
        pytest.param(6, b"", 6, b"first\n", id="nothing"),
    ],
)
def test_append_writes_only_at_its_own_size(tmp_path, offset, data, size, kept):
    store = LogStore(tmp_path, 1 << 30)
    store.append(Key(), 0, b"first\n")
    assert store.append(Key(), offset, data) == size
    assert store.size(Key()) == LogStore(tmp_path, 1 << 30).size(Key()) == size
    assert (tmp_path / "1" / "1" / "0.0").read_bytes() == kept


def test_lines_come_with_run_rank_and_time(store):
    store.append(Key(rank=3), 0, line(5.25, "10%") + line(6, "caf\u00e9") + b"no stamp\n")
    store.append(Key(rank=3), store.size(Key(rank=3)), line(7, "incomplete")[:-1])
    lines, _ = store.read(1)
    assert lines == [
        LogLine(1, 3, 5.25, "10%"),
        LogLine(1, 3, 6.0, "café"),
        LogLine(1, 3, 6.0, "no stamp"),
    ]


def test_an_incomplete_line_comes_once_it_is_complete(store):
    store.append(Key(), 0, line(1, "one") + line(2, "two")[:-2])
    lines, cursor = store.read(1)
    assert texts(lines) == ["one"]
    store.append(Key(), store.size(Key()), line(2, "two")[-2:])
    assert texts(store.read(1, cursor=cursor)[0]) == ["two"]


def test_ranks_are_merged_by_time_and_runs_follow_one_another(store):
    store.append(Key(run=1, rank=0), 0, line(1, "a") + line(4, "d"))
    store.append(Key(run=1, rank=1), 0, line(2, "b") + line(3, "c"))
    store.append(Key(run=2, rank=0), 0, line(5, "e"))
    assert texts(store.read(1)[0]) == list("abcde")
    assert texts(store.read(1, ranks=(1,))[0]) == ["b", "c"]
    assert texts(store.read(1, run=2)[0]) == ["e"]
    assert store.read(2) == ([], store.read(2)[1])


@pytest.mark.parametrize("count", [1, 3, 10, 2000, 5000])
def test_tail_answers_the_last_lines_of_each_rank(tmp_path, count):
    store = LogStore(tmp_path, 1 << 30, segment_bytes=20_000)
    for i in range(3000):
        store.append(Key(), store.size(Key()), line(i, f"{i} {'.' * (i % 90)}"))
    store.append(Key(rank=1), 0, line(1, "other"))
    store.append(Key(), store.size(Key()), b"incomplete")
    mine = [int(text.split()[0]) for text in texts(everything(store, ranks=(0,), tail_lines=count))]
    assert mine == list(range(max(0, 3000 - count), 3000))
    assert len(everything(store, tail_lines=1)) == 2


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        pytest.param({"tail_lines": 1, "ranks": (0,)}, ["e"], id="one is of the last run"),
        pytest.param({"tail_lines": 2, "ranks": (0,)}, ["d", "e"], id="all that the last run has"),
        pytest.param({"tail_lines": 3, "ranks": (0,)}, ["c", "d", "e"], id="a run is in between"),
        pytest.param({"tail_lines": 9, "ranks": (0,)}, list("abcde"), id="more than there are"),
        pytest.param({"tail_lines": 1}, ["z", "e"], id="a rank that the last run has not"),
        pytest.param({"tail_lines": 1, "run": 1}, ["b", "z"], id="of one run"),
        pytest.param({"tail_lines": 3, "since": 5.5}, ["d", "e"], id="and only since"),
    ],
)
def test_tail_counts_over_all_runs(store, wanted, lines):
    store.append(Key(run=1), 0, line(1, "a") + line(2, "b"))
    store.append(Key(run=1, rank=1), 0, line(3, "y") + line(4, "z"))
    store.append(Key(run=2), 0, line(5, "c") + b"incomplete")
    store.append(Key(run=3), 0, line(6, "d") + line(7, "e"))
    assert texts(everything(store, **wanted)) == lines


@pytest.mark.parametrize("since", [-1, 0, 0.5, 1500, 1500.5, 2999, 3000])
def test_since_answers_lines_from_a_time_on(tmp_path, since):
    store = LogStore(tmp_path, 1 << 30, segment_bytes=20_000)
    store.append(Key(), 0, b"".join(line(i, f"{i} {'.' * (i % 90)}") for i in range(3000)))
    found = [int(text.split()[0]) for text in texts(everything(store, since=since))]
    assert found == [i for i in range(3000) if i >= since]


def test_the_oldest_segments_go_and_offsets_stay(tmp_path):
    store = LogStore(tmp_path, 10_000, segment_bytes=1000)
    lines = [line(i, f"{i:04}") for i in range(2000)]
    for raw in lines:
        store.append(Key(), store.size(Key()), raw)
    assert store.size(Key()) == sum(map(len, lines))
    held = sum(path.stat().st_size for path in (tmp_path / "1" / "1").iterdir())
    assert 8000 <= held <= 10_000
    notice, *kept = texts(everything(store))
    numbers = [int(text) for text in kept]
    assert numbers == list(range(2000 - len(numbers), 2000))
    assert notice.startswith(f"[hai] {numbers[0]} lines (")


def test_a_reader_who_slept_goes_on_with_what_is_left(tmp_path):
    store = LogStore(tmp_path, 4000, segment_bytes=1000)
    store.append(Key(), 0, line(0, "first"))
    _, cursor = store.read(1)
    for i in range(500):
        store.append(Key(), store.size(Key()), line(i, f"{i:04}"))
    notice, *kept = texts(store.read(1, cursor=cursor)[0])
    numbers = [int(text) for text in kept]
    assert numbers == list(range(numbers[0], 500))
    missing = sum(len(line(i, f"{i:04}")) for i in range(numbers[0]))
    assert notice.startswith(f"[hai] {missing} bytes before this line are not kept")


def test_a_line_without_end_is_bounded(store):
    store.append(Key(), 0, b"x" * 300_000)
    assert [len(text) for text in texts(everything(store))] == [65537] * 4


def test_old_runs_do_not_lengthen_the_cursor(store):
    for run in range(1, 60):
        store.append(Key(run=run), 0, line(run, str(run)))
    lines, cursor = store.read(1)
    assert texts(lines) == [str(run) for run in range(1, 60)]
    assert len(cursor) < 100
    store.append(Key(run=60), 0, line(60, "60"))
    assert texts(store.read(1, cursor=cursor)[0]) == ["60"]


@pytest.mark.parametrize(
    "cursor", ["nonsense", "e30=", "W10=", "WzEsMiwzLDRd", "\u00e9", "W1tdLDAsMCxbWzEsMCwtNV1dXQ=="]
)
def test_a_cursor_that_is_none_is_refused(store, cursor):
    with pytest.raises(Invalid, match="cursor"):
        store.read(1, cursor=cursor)


def test_a_cursor_of_another_request_is_refused(store):
    _, cursor = store.read(1, ranks=(0,))
    with pytest.raises(Invalid, match="other ranks"):
        store.read(1, cursor=cursor)


async def test_each_follower_of_a_task_hears_of_what_is_appended(store):
    with store.appends(1) as first, store.appends(1) as second:
        store.append(Key(task_id=2), 0, line(1, "other task"))
        assert not first.is_set()
        store.append(Key(), 0, line(1, "one"))
        await asyncio.wait_for(asyncio.gather(first.wait(), second.wait()), 5)
        first.clear()
        store.append(Key(), 0, line(1, "one"))  # a repeated chunk changes nothing
        assert not first.is_set()
    assert not store._followers


def test_bars_are_shown_to_who_watches_until_a_line_replaces_them(store):
    with store.appends(1) as event:
        store.show(Key(rank=1), "10 %")
        assert event.is_set()
        (bar,), number = store.bars(1)
        assert (bar.run, bar.rank, bar.text, bar.redraw) == (1, 1, "10 %", True)
        assert store.bars(1, after=number) == ([], number)
        assert store.bars(2) == store.bars(1, run=2) == store.bars(1, ranks=(0,)) == ([], 0)
        store.show(Key(), "5 %")
        store.show(Key(rank=1), "20 %")
        bars, after = store.bars(1, after=number)
        assert texts(bars) == ["5 %", "20 %"]
        store.append(Key(), 0, line(1, "100 %"))
        assert texts(store.bars(1)[0]) == ["20 %"]
        assert store.bars(1, after=after) == ([], after)
    assert texts(store.read(1)[0]) == ["100 %"]


def test_a_full_disk_is_one_clear_error_and_nothing_breaks(tmp_path):
    store = LogStore(tmp_path, 1 << 30)
    store.append(Key(), 0, b"first\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit of the file size, because a test cannot fill the disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
    try:
        with pytest.raises(Unavailable, match="task 1 run 1 rank 0"):
            store.append(Key(), 6, b"second\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    size = store.size(Key())
    assert store.append(Key(), 6, b"second\n") == 13 >= size
    assert (tmp_path / "1" / "1" / "0.0").read_bytes() == b"first\nsecond\n"


appends = st.lists(
    st.tuples(
        st.integers(1, 3), st.integers(0, 2), st.text("ab\u00e9\r", max_size=30), st.integers(1, 40)
    ),
    max_size=40,
)


@given(appends, st.integers(1, 400))
def test_any_cut_of_any_logs_reads_as_written(tmp_path_factory, written, max_bytes):
    """Readers that follow, in small answers and over restarts, see each line once and ranks in their order."""
    root = tmp_path_factory.mktemp("logs")
    expected: dict[tuple[int, int], list[str]] = {}
    seen: list[LogLine] = []
    cursor = ""
    for i, (run, rank, text, cut) in enumerate(sorted(written, key=lambda w: w[0])):
        store = LogStore(root, 1 << 30, segment_bytes=200)
        raw, key = line(i, text.replace("\r", "") + f" {i}"), Key(1, run, rank)
        for part in (raw[:cut], raw[cut:]):
            store.append(key, store.size(key), part)
        store.append(key, 0, raw)  # a repeated chunk that is no longer at the end
        expected.setdefault((run, rank), []).append(text.replace("\r", "") + f" {i}")
        lines, cursor = store.read(1, cursor=cursor, max_bytes=max_bytes)
        seen += lines
    store = LogStore(root, 1 << 30)
    while lines := (answer := store.read(1, cursor=cursor, max_bytes=max_bytes))[0]:
        seen, cursor = seen + lines, answer[1]
    for (run, rank), wanted in expected.items():
        assert [s.text for s in seen if (s.run, s.rank) == (run, rank)] == wanted


@given(st.lists(st.lists(st.floats(0, 1e6), max_size=20), min_size=1, max_size=4))
def test_existing_lines_come_in_order_of_time_over_all_answers(tmp_path_factory, ranks):
    store = LogStore(tmp_path_factory.mktemp("logs"), 1 << 30)
    for rank, times in enumerate(ranks):
        store.append(Key(rank=rank), 0, b"".join(line(t, "x" * 20_000) for t in sorted(times)))
    lines = everything(store)
    assert len(lines) == sum(map(len, ranks))
    assert all(a.time <= b.time for a, b in pairwise(lines))


def test_what_a_leader_of_old_still_appends_is_not_read(tmp_path: Path) -> None:
    """The former leader was paused and does not know that another server leads. It cannot acknowledge these lines."""
    old = LogStore(tmp_path, 1 << 30, alone=False)
    known = line(1, "known")
    assert old.append(Key(), 0, known) == len(known)
    new = LogStore(tmp_path, 1 << 30, alone=False)
    assert new.size(Key()) == len(known)
    late, said = line(2, "late"), line(2, "said to the new one")
    old.append(Key(), len(known), late)
    new.append(Key(), len(known), said)
    old.append(Key(), len(known) + len(late), late)
    third = LogStore(tmp_path, 1 << 30, alone=False)
    assert third.size(Key()) == len(known) + len(said)
    for store in (old, new, third):
        assert texts(everything(store)) == ["known", "said to the new one"]


def test_two_servers_that_begin_a_log_at_once_do_not_share_its_file(tmp_path: Path) -> None:
    """The leader was paused before it wrote a first line. Its agent has since attached to the next leader."""
    old = LogStore(tmp_path, 1 << 30, alone=False)
    new = LogStore(tmp_path, 1 << 30, alone=False)
    assert (old.size(Key()), new.size(Key())) == (0, 0)
    said = line(1, "said to both")
    assert new.append(Key(), 0, said) == len(said)
    with pytest.raises(Unavailable, match="File exists"):
        old.append(Key(), 0, said)
    assert texts(everything(new)) == ["said to both"]


def test_a_file_that_another_server_has_left_empty_is_replaced(tmp_path: Path) -> None:
    """The former leader was paused after it had created a segment. It may write to this segment later."""
    old = LogStore(tmp_path, 1 << 30, segment_bytes=20, alone=False)
    known, said = line(1, "known"), line(2, "said to the new one")
    old.append(Key(), 0, known)
    new = LogStore(tmp_path, 1 << 30, alone=False)
    assert new.append(Key(), len(known), said) == len(known) + len(said)
    with pytest.raises(Unavailable, match="another server writes it"):
        old.append(Key(), len(known), said)
    assert texts(everything(new)) == ["known", "said to the new one"]


def test_a_server_that_is_alone_goes_on_in_its_file(tmp_path: Path) -> None:
    for i in range(3):
        store = LogStore(tmp_path, 1 << 30)
        store.append(Key(), store.size(Key()), line(i, str(i)))
    assert len([*(tmp_path / "1" / "1").iterdir()]) == 1


def test_a_restarted_store_lists_the_directory_of_a_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks of a run attach after a restart. With a listing for each, 5 000 ranks took half a minute."""
    first = LogStore(tmp_path, 1 << 30)
    for rank in range(3):
        first.append(Key(rank=rank), 0, b"x" * rank + b"\n")
    listed = []
    scan = segments.scan

    def record(directory: Path) -> dict[int, list[segments.Segment]]:
        listed.append(directory.name)
        return scan(directory)

    monkeypatch.setattr(segments, "scan", record)
    store = LogStore(tmp_path, 1 << 30)
    sizes = [store.size(Key(rank=rank)) for rank in range(5)]
    assert sizes == [1, 2, 3, 0, 0]
    assert listed == ["1"]


def test_a_forgotten_tail_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_MAX_CACHED", 2)
    store = LogStore(tmp_path, 1 << 30)
    for rank in (0, 1, 2, 3, 0, 2, 1):
        store.append(Key(rank=rank), store.size(Key(rank=rank)), b"line\n")
    assert [store.size(Key(rank=rank)) for rank in range(4)] == [10, 10, 10, 5]
