"""Requests to the cluster: which are retried, which errors are raised, and how responses are interpreted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from random import Random

import pytest

from hai_backend.kube_cache.source import Expired
from hai_backend.launch.kubernetes.api import Answer, Api, Call
from hai_backend.launch.kubernetes.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    Rejected,
    Throttled,
    Unavailable,
    error_from,
)
from hai_backend.launch.kubernetes.official_client import OfficialTransport
from hai_backend.testing.kube import FakeCluster
from tests.support.virtual_time import run_virtually

GOOD = Answer(200, b'{"metadata": {"uid": "u"}}')


class Script:
    """Returns the given answers in order, then a successful answer to every request."""

    def __init__(self, *answers: Answer | Exception, lines: Sequence[bytes] = ()) -> None:
        self._answers = [*answers]
        self._lines = lines
        self.calls: list[Call] = []

    async def ask(self, call: Call, seconds: float) -> Answer:
        self.calls.append(call)
        answer = self._answers.pop(0) if self._answers else GOOD
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def lines(self, call: Call) -> AsyncGenerator[bytes, None]:
        self.calls.append(call)
        for line in self._lines:
            yield line

    async def close(self) -> None:
        pass


def status(code: int, reason: str = "", message: str = "why", **details: int) -> Answer:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return Answer(code, json.dumps({**body, "details": details}).encode())


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(status(404), NotFound, id="it is gone"),
        pytest.param(status(409, "AlreadyExists"), AlreadyExists, id="it is there"),
        pytest.param(status(409, "Conflict"), Conflict, id="somebody was faster"),
        pytest.param(
            status(409, "Conflict", "Precondition failed: UID in precondition: a, UID in …: b"),
            NotFound,
            id="another object has the name",
        ),
        pytest.param(status(410, "Expired"), Expired, id="too old"),
        pytest.param(status(429), Throttled, id="too many"),
        pytest.param(status(403, "Forbidden"), Rejected, id="forbidden"),
        pytest.param(status(422, "Invalid"), Rejected, id="invalid"),
        pytest.param(status(401), Unavailable, id="a token that ran out"),
        pytest.param(status(500), Unavailable, id="a server error"),
        pytest.param(Answer(502, b"<html>"), Unavailable, id="a proxy"),
    ],
)
def test_what_an_answer_means(answer: Answer, kind: type[Exception]) -> None:
    assert type(error_from(answer.code, answer.body)) is kind


def test_how_long_to_wait_is_the_servers_to_say() -> None:
    for answer, header in ((status(429, retryAfterSeconds=7), ""), (status(429), "7")):
        error = error_from(answer.code, answer.body, header)
        assert isinstance(error, Throttled)
        assert error.seconds == 7.0


PASSING = [
    pytest.param(Unavailable("lost"), id="lost"),
    pytest.param(status(503), id="503"),
    pytest.param(status(409, "Conflict"), id="conflict"),
    pytest.param(status(429), id="429"),
    pytest.param(Answer(200, b'{"metadata": {"ui'), id="cut short"),
]


@pytest.mark.parametrize("answer", PASSING)
def test_what_may_pass_is_asked_again_and_not_for_ever(answer: Answer | Exception) -> None:
    async def story() -> None:
        script = Script(answer, answer)
        assert await Api(script, "ns", Random(1)).get("Pod", "a") == {"metadata": {"uid": "u"}}
        assert len(script.calls) == 3
        script = Script(*[answer] * 9)
        with pytest.raises((Unavailable, Conflict, Throttled)):
            await Api(script, "ns", Random(1)).get("Pod", "a")
        assert len(script.calls) == 5
        api = Api(Script(*[answer] * 40), "ns", Random(1))
        await api.retry_forever(lambda: api.get("Pod", "a"))

    run_virtually(story())


@pytest.mark.parametrize("answer", [status(404), status(422), status(409, "AlreadyExists")])
def test_what_does_not_pass_is_told_at_once(answer: Answer) -> None:
    async def story() -> None:
        script = Script(answer)
        with pytest.raises((NotFound, Rejected, AlreadyExists)):
            await Api(script, "ns", Random(1)).get("Pod", "a")
        assert len(script.calls) == 1

    run_virtually(story())


def test_a_list_comes_in_pages() -> None:
    async def story() -> list[str]:
        first = {"metadata": {"resourceVersion": "5", "continue": "x"}, "items": [{"n": 1}]}
        second = {"metadata": {"resourceVersion": "5"}, "items": [{"n": 2}]}
        script = Script(*(Answer(200, json.dumps(page).encode()) for page in (first, second)))
        pages = [page async for page in Api(script, "ns", Random(1)).pages("Pod", {"a": "b"})]
        assert [item["n"] for page in pages for item in page.items] == [1, 2]
        return [call.query.get("continue", "") for call in script.calls]

    assert run_virtually(story()) == ["", "x"]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        pytest.param(
            b'{"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}', Expired, id="410"
        ),
        pytest.param(b'{"type": "ERROR", "object": {"code": 504}}', Unavailable, id="504"),
        pytest.param(b'{"type": "ERROR", "object": {"code": 403}}', Unavailable, id="403"),
        pytest.param(b'{"type": "ADDED", "obj', Unavailable, id="cut short"),
    ],
)
def test_an_error_in_a_stream_ends_it(line: bytes, kind: type[Exception]) -> None:
    async def story() -> None:
        api = Api(Script(lines=[line]), "ns", Random(1))
        with pytest.raises(kind):
            async for _ in api.changes("Pod", {}, "7", 60.0):
                pass

    run_virtually(story())


def test_no_more_than_so_many_requests_are_under_way() -> None:
    class Slow(Script):
        now = most = 0

        async def ask(self, call: Call, seconds: float) -> Answer:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(1.0)
            self.now -= 1
            return GOOD

    async def story() -> int:
        script = Slow()
        api = Api(script, "ns", Random(1))
        await asyncio.gather(*(api.get("Pod", str(i)) for i in range(200)))
        return script.most

    assert run_virtually(story()) == 48


async def test_the_official_client_over_http(tmp_path: object) -> None:
    async with FakeCluster(1) as cluster:
        from pathlib import Path

        path = cluster.kubeconfig(Path(str(tmp_path)) / "kubeconfig")
        api = Api(OfficialTransport(str(path)), "default", Random(1))
        made = await api.create(
            {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"x": "1"}}
        )
        changed = await api.patch("ConfigMap", "a", {"data": {"y": "2"}})
        assert changed["data"] == {"x": "1", "y": "2"}
        with pytest.raises(AlreadyExists):
            await api.create({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}})
        with pytest.raises(NotFound):
            await api.delete("ConfigMap", "a", uid="of another")
        stream = api.changes("ConfigMap", {}, made["metadata"]["resourceVersion"], 60.0)
        assert (await anext(stream))[0] == "MODIFIED"
        await api.delete("ConfigMap", "a")
        assert (await anext(stream))[0] == "DELETED"
        await stream.aclose()
        async with cluster.outage():
            with pytest.raises(Unavailable):
                await api.get("Pod", "a")
        await api.close()
