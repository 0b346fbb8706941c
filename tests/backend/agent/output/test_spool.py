"""Appended lines arrive exactly once and in order, even if streams break. The size is limited without a stream."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hai_backend.agent.output import spool as spool_module
from hai_backend.agent.output.spool import Spool
from tests.small_disk import small_disk


def send_all(spool: Spool, held: bytearray) -> None:
    """Send all pieces, as the session does, and append them to `held`, as the server does."""
    while (piece := spool.piece()) is not None:
        offset, data = piece
        assert offset == len(held)
        held += data
        spool.sent(offset + len(data))


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 300)),
        st.tuples(st.just("send"), st.integers(1, 5)),
        st.tuples(st.just("acknowledge"), st.just(0)),
        # so many bytes were lost by the network
        st.tuples(st.just("reconnect"), st.integers(0, 400)),
        # so many bytes arrive after the next stream has begun
        st.tuples(st.just("late"), st.integers(0, 400)),
    ),
    max_size=60,
)


@given(steps)
def test_everything_arrives_once_and_in_order(tmp_path_factory, steps):
    spool = Spool(tmp_path_factory.mktemp("rank") / "spool", segment_bytes=500)
    printed, held, acknowledged = bytearray(), bytearray(), 0
    for kind, n in steps:
        if kind == "append":
            line = f"{len(printed)} ".encode() + b"x" * n + b"\n"
            printed += line
            spool.append(line)
        elif kind == "send":
            for _ in range(n):
                if (piece := spool.piece()) is not None:
                    assert piece[0] == len(held)
                    held += piece[1]
                    spool.sent(len(held))
        elif kind == "acknowledge":
            acknowledged = len(held)
            spool.acknowledge(acknowledged)
        else:
            on_the_way = held[max(acknowledged, len(held) - n) :]
            del held[max(acknowledged, len(held) - n) :]
            spool.resume(len(held))
            acknowledged = len(held)
            if kind == "late":
                held += on_the_way
                spool.resume(len(held))
                acknowledged = len(held)
    send_all(spool, held)
    assert held == printed
    assert spool.drained


def test_what_was_late_on_an_earlier_stream_is_not_sent_again(tmp_path):
    """Two streams end without answers before the bytes of the first one arrive."""
    spool = Spool(tmp_path / "spool")
    spool.append(b"one\ntwo\n")
    spool.sent(8)
    spool.resume(0)
    spool.resume(8)
    assert spool.piece() is None
    spool.append(b"three\n")
    assert spool.piece() == (8, b"three\n")


def test_a_log_that_another_stream_began_is_continued(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.resume(1000)
    spool.append(b"one\n")
    assert spool.piece() == (1000, b"one\n")


def test_pieces_are_whole_lines(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.append(b"".join(b"%05d\n" % i for i in range(20_000)))
    offset, data = spool.piece() or (0, b"")
    assert (offset, len(data) % 6, len(data) <= 65536) == (0, 0, True)


def test_what_is_acknowledged_leaves_the_disk(tmp_path):
    spool = Spool(tmp_path / "spool", segment_bytes=1000)
    held = bytearray()
    for _ in range(100):
        spool.append(b"x" * 99 + b"\n")
        send_all(spool, held)
        spool.acknowledge(len(held))
    assert size(tmp_path / "spool") <= 2000


def test_a_server_that_stays_away_costs_the_oldest_lines_and_one_says_so(tmp_path):
    spool = Spool(tmp_path / "spool", limit=5000, segment_bytes=1000)
    held = bytearray()
    spool.append(b"first\n")
    send_all(spool, held)
    for i in range(200):
        spool.append(b"%03d%s\n" % (i, b"." * 96))
    assert size(tmp_path / "spool") <= 6100
    spool.resume(len(held))
    send_all(spool, held)
    lines = held.splitlines()
    assert lines[0] == b"first"
    notices = [line for line in lines if b"[hai]" in line]
    assert len(notices) == 1
    kept = [int(line[:3]) for line in lines[1:] if b"[hai]" not in line]
    assert kept[-20:] == list(range(180, 200))
    dropped = int(notices[0].split()[2])
    assert dropped + sum(len(line) + 1 for line in lines if b"[hai]" not in line) == 20_006


def test_a_full_disk_costs_lines_and_one_says_so(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.append(b"first\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
    try:
        spool.append(b"second\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    spool.append(b"third\n")
    held = bytearray()
    send_all(spool, held)
    first, notice, third = held.splitlines()
    assert (first, third) == (b"first", b"third")
    assert b"7 bytes of output were lost" in notice


def test_a_spool_on_a_full_disk_goes_on_when_there_is_room(tmp_path):
    """Lines that were stored are sent unchanged. A notice for lost lines contains the directory."""
    with small_disk(tmp_path / "disk", 4) as disk:
        spool = Spool(disk / "spool", segment_bytes=100_000)
        lines = [b"%06d%s\n" % (number, b"." * 993) for number in range(4500)]
        for line in lines[:4400]:
            spool.append(line)
        held = bytearray()
        send_all(spool, held)
        assert bytes(held).startswith(b"".join(lines[:3000]))
        spool.acknowledge(len(held))  # this frees space
        for line in lines[4400:]:
            spool.append(line)
        send_all(spool, held)
    told = bytes(held).splitlines(keepends=True)
    kept = [line for line in told if b"[hai]" not in line]
    (notice,) = (line for line in told if b"[hai]" in line)
    assert set(kept) <= set(lines)
    assert kept == sorted(kept)
    assert kept[-100:] == lines[4400:]
    lost = f"[hai] {1000 * (4500 - len(kept))} bytes of output were lost here: {disk / 'spool'}: "
    assert lost.encode() in notice


def test_a_notice_that_finds_no_room_is_counted_in_the_next_one(tmp_path, monkeypatch):
    """Another process uses the space that was freed for the notice. The agent must not fail."""
    monkeypatch.setattr(spool_module, "_append", _without_room_for_notices)
    spool = Spool(tmp_path / "spool", limit=5000, segment_bytes=1000)
    for number in range(200):
        spool.append(b"%03d%s\n" % (number, b"." * 96))
    monkeypatch.setattr(spool_module, "_append", APPEND)
    spool.append(b"last\n")
    held = bytearray()
    send_all(spool, held)
    lines = bytes(held).splitlines(keepends=True)
    lost = sum(int(line.split()[2]) for line in lines if b"[hai]" in line)
    assert lines[-1] == b"last\n"
    assert lost + sum(len(line) for line in lines if b"[hai]" not in line) == 20_005


APPEND = spool_module._append


def _without_room_for_notices(segment, data: bytes) -> None:
    if b"[hai]" in data:
        raise OSError(errno.ENOSPC, "No space left on device")
    APPEND(segment, data)
