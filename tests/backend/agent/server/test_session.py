"""The session on a network that drops packets without an error, in virtual time, with a real lease.

`Link` simulates a connection. Messages of each side arrive, unless the network is silent. Silence ends no stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.lease import Expired, Lease
from hai_backend.agent.output.spool import Spool
from hai_backend.agent.rank_dir import RankDir, ServerAddress
from hai_backend.agent.server.outgoing import Outgoing
from hai_backend.agent.server.session import RankRejected, Session
from hai_backend.domain.timing import Timing
from tests.support.virtual_time import run_virtually

FENCE = 600.0
TIMING = Timing(5.0, FENCE)


def failed(code: grpc.StatusCode, details: str) -> aio.AioRpcError:
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), details)


class Link:
    """One stream. While the network is silent, nothing arrives, and no error is reported.

    Messages arrive after the silence, because TCP sends them again, unless the stream has ended meanwhile.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self._held: list[Callable[[], None]] = []
        self._answers: asyncio.Queue[pb.AttachResponse | Exception] = asyncio.Queue()
        self._end: aio.AioRpcError | None = None

    def __aiter__(self) -> AsyncIterator[pb.AttachResponse]:
        return self

    async def __anext__(self) -> pb.AttachResponse:
        answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def write(self, message: pb.AttachRequest) -> None:
        if self._end is not None:
            raise self._end
        await asyncio.sleep(0)
        self._carry(lambda: self.network.serve(self, message))

    def cancel(self, reason: str = "") -> None:
        self.end(grpc.StatusCode.CANCELLED, reason)

    def end(self, code: grpc.StatusCode, details: str) -> None:
        if self._end is None:
            self._end = failed(code, details)
            self._answers.put_nowait(self._end)

    def finish(self) -> None:
        """End the stream with OK, as the server does."""
        self._answers.put_nowait(StopAsyncIteration())

    def answer(self, **message: Any) -> None:
        self._carry(lambda: self._answers.put_nowait(pb.AttachResponse(**message)))

    def deliver(self) -> None:
        held, self._held = self._held, []
        for arrive in held if self._end is None else ():
            arrive()

    def _carry(self, arrive: Callable[[], None]) -> None:
        if self.network.silent:
            self._held.append(arrive)
        else:
            arrive()


class Network:
    """All streams of one agent, and the server to which they lead."""

    address = "10.0.0.1"

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.silent = False
        self.renews = True
        self.log = b""
        self.log_delay = 0.0
        self.return_within = 0.0
        self.log_messages = 0
        self.refusal: aio.AioRpcError | None = None

    def heal(self) -> None:
        self.silent = False
        for link in self.links:
            link.deliver()

    @asynccontextmanager
    async def connect(self, server: ServerAddress, token: str) -> AsyncIterator[Network]:
        if self.refusal is not None:
            raise self.refusal
        yield self

    def attach(self) -> Link:
        self.links.append(Link(self))
        return self.links[-1]

    def carry(self) -> Any:
        raise NotImplementedError

    def serve(self, link: Link, message: pb.AttachRequest) -> None:
        match message.WhichOneof("message"):
            case "hello":
                link.answer(welcome=pb.AgentWelcome(log_offset=len(self.log)))
            case "heartbeat":
                self.append(message.heartbeat.log)
                answer = pb.HeartbeatAnswered(
                    number=message.heartbeat.number,
                    lease_renewed=self.renews,
                    log_delay_seconds=self.log_delay,
                    log_offset=len(self.log),
                    return_within_seconds=self.return_within,
                )
                link.answer(heartbeat=answer)
            case "log":
                self.log_messages += 1
                self.append(message.log)
                link.answer(log_acknowledged=pb.LogAcknowledged(offset=len(self.log)))

    def append(self, chunk: pb.LogChunk) -> None:
        if chunk.offset == len(self.log):
            self.log += chunk.data


class Rank:
    """A session with heartbeats. If `prints` is set, its program prints a line every second."""

    def __init__(self, directory: Path, *, prints: bool) -> None:
        (directory / "run" / "7-1-0").mkdir(parents=True)
        facts = f'{{"address": "server:1", "fence_after": {FENCE}}}'
        (directory / "server.json").write_text(facts)
        self.directory = RankDir(directory / "run" / "7-1-0")
        (self.directory.path / "agent.json").write_text("{}")
        self.network = Network()
        self.lease = Lease(TIMING.lease, asyncio.get_running_loop().time)
        self.outgoing = Outgoing()
        self.spool = Spool(self.directory.spool)
        self.printed = b""
        self.session = Session(
            *(self.directory, "t", self, self.outgoing, self.spool, self.lease),
            *(self.network.connect,),
            pace=1.0,
        )
        self.work = [asyncio.create_task(self.session.run()), asyncio.create_task(self._beat())]
        if prints:
            self.work.append(asyncio.create_task(self._print()))

    def hello(self, address: str) -> pb.AgentHello:
        return pb.AgentHello(address=address)

    def handle(self, response: pb.AttachResponse) -> None:
        pass

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(TIMING.heartbeat)
            self.session.beat()

    async def _print(self) -> None:
        for number in range(100_000):
            await asyncio.sleep(1.0)
            self.print(f"line {number}\n".encode())

    def print(self, line: bytes) -> None:
        self.printed += line
        self.spool.append(line)
        self.session.wake()

    async def close(self) -> None:
        for each in self.work:
            each.cancel()
        await asyncio.gather(*self.work, return_exceptions=True)


Play = Callable[[Callable[..., Rank]], Coroutine[Any, Any, None]]


def play(directory: Path, story: Play) -> None:
    """Run a test of a rank in virtual time."""

    async def played() -> None:
        ranks: list[Rank] = []

        def start(*, prints: bool = True) -> Rank:
            ranks.append(Rank(directory, prints=prints))
            return ranks[-1]

        try:
            await story(start)
        finally:
            for rank in ranks:
                await rank.close()

    run_virtually(played())


both = pytest.mark.parametrize("prints", [True, False], ids=["prints", "is silent"])


@both
def test_an_answering_server_renews_the_lease_for_ever(tmp_path: Path, prints: bool) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start(prints=prints)
        await asyncio.sleep(2_000)
        assert len(rank.network.links) == 1
        assert rank.lease.remaining > TIMING.lease - 2 * TIMING.heartbeat
        assert len(rank.session._heartbeats_sent_at) <= 2, "answered ones are forgotten"
        await asyncio.sleep(0.5)
        assert rank.spool.piece() is None
        assert rank.spool.acknowledged == len(rank.printed), "what the server has is not kept"

    play(tmp_path, story)


def test_the_lease_is_renewed_as_soon_as_a_stream_stands_again(tmp_path: Path) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start(prints=False)
        await asyncio.sleep(22)
        ended_at = rank.lease.now()
        rank.network.links[0].finish()
        await asyncio.sleep(1)
        assert rank.lease.deadline >= ended_at + TIMING.lease, "not only with the next heartbeat"

    play(tmp_path, story)


@both
@pytest.mark.parametrize("seconds", [5, 31, 61, 300])
def test_after_a_silence_it_attaches_again_and_no_line_is_lost(
    tmp_path: Path, prints: bool, seconds: int
) -> None:
    """A call that was cancelled after 30 s once ended the session for ever, and the fence with it."""

    async def story(start: Callable[..., Rank]) -> None:
        rank = start(prints=prints)
        await asyncio.sleep(20)
        rank.network.silent = True
        await asyncio.sleep(seconds)
        rank.network.heal()
        healed_at = rank.lease.now()
        await asyncio.sleep(4 * TIMING.stream_patience + 6)
        assert rank.lease.deadline > healed_at + TIMING.lease, "it was renewed"
        assert not rank.work[0].done()
        await asyncio.sleep(1)
        assert rank.network.log.count(b"line") >= rank.printed.count(b"line") - 2
        assert rank.printed.startswith(rank.network.log)

    play(tmp_path, story)


@both
def test_a_silence_for_ever_lets_the_lease_run_out_and_nothing_renews_it_then(
    tmp_path: Path, prints: bool
) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start(prints=prints)
        await asyncio.sleep(20)
        rank.network.silent, since = True, rank.lease.now()
        await asyncio.sleep(FENCE - 21)
        assert rank.lease.expired
        assert rank.lease.deadline <= since + TIMING.lease
        rank.network.heal()
        with pytest.raises(BaseExceptionGroup) as raised:
            await rank.work[0]
        assert isinstance(raised.value.exceptions[0], Expired)
        assert rank.lease.expired

    play(tmp_path, story)


def test_a_lease_that_is_not_renewed_runs_out_though_the_server_answers(tmp_path: Path) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start()
        await asyncio.sleep(20)
        rank.network.renews = False
        await asyncio.sleep(TIMING.lease + 1)
        assert rank.lease.expired
        assert len(rank.network.links) == 1, "an answer without renewal is still an answer"

    play(tmp_path, story)


def test_a_renewal_counts_from_the_sending_not_from_the_answer(tmp_path: Path) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start(prints=False)
        await asyncio.sleep(1)
        link, serve = rank.network.links[0], rank.network.serve
        late: list[pb.AttachRequest] = []
        rank.network.serve = lambda link, message: late.append(message)  # type: ignore[method-assign]
        await asyncio.sleep(TIMING.heartbeat + 1)
        sent_at = rank.lease.now() - 2
        await asyncio.sleep(10)
        (beat, *_) = late
        serve(link, beat)
        await asyncio.sleep(0.01)
        assert rank.lease.deadline == pytest.approx(sent_at + TIMING.lease, abs=0.1)

    play(tmp_path, story)


def test_a_stream_is_opened_again_within_the_patience_and_the_patience_grows(
    tmp_path: Path,
) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start()
        await asyncio.sleep(20)
        rank.network.silent = True
        opened = []
        for _ in range(300):
            await asyncio.sleep(1)
            opened.append(len(rank.network.links))
        waits = [opened.index(n + 1) - opened.index(n) for n in range(2, max(opened))]
        assert opened[int(TIMING.stream_patience) + 1] == 2
        assert waits[:3] == pytest.approx([40, 80, 80], abs=8)

    play(tmp_path, story)


def test_an_answered_heartbeat_gives_the_usual_patience_back(tmp_path: Path) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start()
        await asyncio.sleep(20)
        rank.network.silent = True
        await asyncio.sleep(200)
        rank.network.heal()
        await asyncio.sleep(100)
        rank.network.silent, opened = True, len(rank.network.links)
        await asyncio.sleep(TIMING.stream_patience + 2)
        assert len(rank.network.links) == opened + 1

    play(tmp_path, story)


def test_heartbeats_that_were_never_sent_leave_nothing_behind(tmp_path: Path) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start()
        rank.network.refusal = failed(grpc.StatusCode.UNAVAILABLE, "no server")
        rank.network.silent = True
        await asyncio.sleep(3_000)
        assert len(rank.session._heartbeats_sent_at) <= 2

    play(tmp_path, story)


def test_a_stream_that_the_server_ends_is_opened_again_at_once(tmp_path: Path) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start()
        await asyncio.sleep(20)
        rank.network.links[0].finish()
        await asyncio.sleep(1)
        assert len(rank.network.links) == 2

    play(tmp_path, story)


def test_what_is_not_answered_is_repeated_on_the_next_stream(tmp_path: Path) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank, yielded = start(), 0
        serve = rank.network.serve

        def count(link: Link, message: pb.AttachRequest) -> None:
            nonlocal yielded
            yielded += message.WhichOneof("message") == "yielded"
            serve(link, message)

        rank.network.serve = count  # type: ignore[method-assign]
        rank.outgoing.keep("yielded", pb.AttachRequest(yielded=pb.Yielded()))
        await asyncio.sleep(20)
        rank.network.links[0].finish()
        await asyncio.sleep(20)
        assert yielded == 2

    play(tmp_path, story)


def test_without_a_stream_there_is_no_way_for_tunnels(tmp_path: Path) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start()
        await asyncio.sleep(20)
        with pytest.raises(NotImplementedError):
            rank.session.carry()
        rank.network.refusal = failed(grpc.StatusCode.UNAVAILABLE, "no server")
        rank.network.links[0].finish()
        await asyncio.sleep(1)
        assert rank.session.carry() is None

    play(tmp_path, story)


def test_a_stream_that_is_refused_gives_the_rank_up(tmp_path: Path) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start()
        await asyncio.sleep(20)
        rank.network.links[0].end(grpc.StatusCode.NOT_FOUND, "there is no such task")
        with pytest.raises(RankRejected, match="no such task"):
            await asyncio.wait_for(rank.work[0], 1)

    play(tmp_path, story)


@pytest.mark.parametrize("silent_first", [False, True])
def test_who_is_given_up_hears_it_also_after_a_silence(tmp_path: Path, silent_first: bool) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start()
        await asyncio.sleep(20)
        rank.network.silent = silent_first
        await asyncio.sleep(30)
        rank.network.heal()
        rank.network.refusal = failed(grpc.StatusCode.NOT_FOUND, "there is no such task")
        for link in rank.network.links:
            link.end(grpc.StatusCode.UNAVAILABLE, "the server stops")
        with pytest.raises(RankRejected):
            await asyncio.wait_for(rank.work[0], 60)

    play(tmp_path, story)


def test_a_session_that_is_cancelled_while_its_stream_fails_ends(tmp_path: Path) -> None:
    """After SIGSTOP and SIGCONT, the lease and the patience of an agent end at the same moment."""

    async def story(start: Callable[..., Rank]) -> None:
        rank = start(prints=False)
        await asyncio.sleep(20)
        rank.session.beat()  # the writer notices that the stream has ended
        rank.network.links[-1].end(grpc.StatusCode.UNAVAILABLE, "gone")
        rank.work[0].cancel()
        await asyncio.wait(rank.work[:1], timeout=60)
        assert rank.work[0].cancelled()

    play(tmp_path, story)


def test_agents_return_at_random_times_within_the_time_that_the_server_gives(
    tmp_path: Path,
) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank, waits = start(prints=False), []
        rank.network.return_within = 4.0
        clock = asyncio.get_running_loop().time
        for count in range(1, 31):
            await asyncio.sleep(TIMING.heartbeat + 1)
            rank.network.links[-1].finish()
            ended_at = clock()
            while len(rank.network.links) == count:  # noqa: ASYNC110 - in virtual time
                await asyncio.sleep(0.05)
            waits.append(clock() - ended_at)
        assert max(waits) < 4.0 + 0.3
        assert max(waits) - min(waits) > 1.0, "they are spread"

    play(tmp_path, story)


def test_only_the_first_try_of_a_return_is_delayed(tmp_path: Path) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start(prints=False)
        rank.network.return_within = 4.0
        await asyncio.sleep(TIMING.heartbeat + 1)
        rank.network.refusal = failed(grpc.StatusCode.UNAVAILABLE, "no server")
        rank.network.links[-1].finish()
        await asyncio.sleep(4.2)
        rank.network.refusal = None
        await asyncio.sleep(2 * 4.0 * 1.2)
        assert len(rank.network.links) == 2
        assert rank.session._spread() <= 4.0
        assert rank.session._spread() == 0.0, "a later try"

    play(tmp_path, story)


DELAY = 1.5 * TIMING.heartbeat
LARGE = b"x" * 40_000 + b"\n"


def unsent(rank: Rank) -> int:
    """Return the number of lines that have not reached the server."""
    return rank.printed.count(b"\n") - rank.network.log.count(b"\n")


def test_lines_travel_with_heartbeats_while_the_server_allows_a_delay(tmp_path: Path) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start()
        rank.network.log_delay = DELAY
        await asyncio.sleep(2 * TIMING.heartbeat)
        before, longest = rank.network.log_messages, 0
        for _ in range(100):
            await asyncio.sleep(1.01)
            longest = max(longest, unsent(rank))
        assert rank.network.log_messages == before, "no message holds lines only"
        assert 3 <= longest <= TIMING.heartbeat, "lines are held, but not for long"
        assert rank.printed.startswith(rank.network.log)
        assert rank.spool.acknowledged >= len(rank.network.log) - TIMING.heartbeat * len("line 100")

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("delay", "messages"),
    [
        pytest.param(0.0, 100, id="an older server allows no delay"),
        pytest.param(2.5, 20, id="shorter than between two heartbeats"),
    ],
)
def test_lines_are_held_for_the_delay_of_the_server(
    tmp_path: Path, delay: float, messages: int
) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start()
        rank.network.log_delay = delay
        await asyncio.sleep(20)
        before = rank.network.log_messages
        await asyncio.sleep(100)
        assert rank.network.log_messages - before == pytest.approx(messages, abs=messages // 10)

    play(tmp_path, story)


def _follow(rank: Rank) -> None:
    rank.network.links[-1].answer(log_followed=pb.LogFollowed(delay_seconds=0.0))


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(_follow, id="the log is followed"),
        pytest.param(lambda rank: rank.session.send_lines_at_once(), id="the rank is suspended"),
        pytest.param(lambda rank: rank.print(LARGE), id="they are many"),
        pytest.param(
            lambda rank: rank.outgoing.keep(
                "exited", pb.AttachRequest(exited=pb.ProgramExited()), after_log=True
            ),
            id="the program has ended",
        ),
    ],
)
def test_held_lines_are_sent_at_once(tmp_path: Path, event: Callable[[Rank], None]) -> None:
    async def story(start: Callable[..., Rank]) -> None:
        rank = start(prints=False)
        rank.network.log_delay = DELAY
        await asyncio.sleep(TIMING.heartbeat + 1)
        rank.print(b"first\n")
        await asyncio.sleep(0.01)
        assert unsent(rank) == 0, "the first line is not held"
        rank.print(b"second\n")
        await asyncio.sleep(1)
        assert unsent(rank) == 1
        event(rank)
        rank.session.wake()
        await asyncio.sleep(0.1)
        assert unsent(rank) == 0

    play(tmp_path, story)


def test_a_new_stream_holds_no_lines_before_its_server_allows_it(tmp_path: Path) -> None:
    """An older server would lose lines that travel with heartbeats."""

    async def story(start: Callable[..., Rank]) -> None:
        rank = start()
        rank.network.log_delay = DELAY
        await asyncio.sleep(20)
        rank.network.log_delay = 0.0
        rank.network.append = lambda chunk: None  # type: ignore[method-assign]
        rank.network.links[-1].finish()
        beats: list[pb.AttachRequest] = []
        serve = rank.network.serve

        def record(link: Link, message: pb.AttachRequest) -> None:
            if message.HasField("heartbeat"):
                beats.append(message)
            serve(link, message)

        rank.network.serve = record  # type: ignore[method-assign]
        await asyncio.sleep(20)
        assert len(beats) > 3
        assert not any(beat.heartbeat.HasField("log") for beat in beats)

    play(tmp_path, story)
