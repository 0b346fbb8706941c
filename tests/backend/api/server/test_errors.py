"""Errors in statuses: code, reason and violations, and nothing confidential."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from structlog.testing import capture_logs

from hai.v1 import task_service_pb2 as pb
from hai_backend.api.server.errors import Expired, code_of, status_of
from hai_backend.domain import errors

C = grpc.StatusCode
ONE = (errors.Violation("a", "b"),)
MANY = tuple(errors.Violation(f"field[{i}]", "x" * 100) for i in range(1000))


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (errors.NotFound("x"), C.NOT_FOUND, "NOT_FOUND"),
        (errors.Denied("x"), C.PERMISSION_DENIED, "DENIED"),
        (errors.Denied("x", reason="SCOPE_TOO_SMALL"), C.PERMISSION_DENIED, "SCOPE_TOO_SMALL"),
        (errors.Unauthenticated("x", reason="TOKEN_EXPIRED"), C.UNAUTHENTICATED, "TOKEN_EXPIRED"),
        (errors.Invalid(ONE), C.INVALID_ARGUMENT, "INVALID"),
        (errors.Invalid(ONE, reason="QUOTA_EXCEEDED"), C.INVALID_ARGUMENT, "QUOTA_EXCEEDED"),
        (errors.Conflict("x"), C.FAILED_PRECONDITION, "CONFLICT"),
        (errors.Conflict("x", reason="NAME_TAKEN"), C.ALREADY_EXISTS, "NAME_TAKEN"),
        (errors.Conflict("x", reason="FENCED"), C.FAILED_PRECONDITION, "FENCED"),
        (errors.Exhausted("x"), C.RESOURCE_EXHAUSTED, "LIMIT_REACHED"),
        (errors.Unavailable("x"), C.UNAVAILABLE, "UNAVAILABLE"),
        (Expired("x"), C.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
        (errors.InvalidTransition("task 5 is odd"), C.INTERNAL, "INTERNAL"),
        (errors.HaiError("secret"), C.INTERNAL, "INTERNAL"),
        (KeyError("secret"), C.INTERNAL, "INTERNAL"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_each_error_has_one_code_and_reason(error: Exception, code: C, reason: str) -> None:
    with capture_logs() as logs:
        status = status_of(error, "/x/Y")
    assert (code_of(error), status.code) == (code, code.value[0])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == (reason, "hai.dev")
    assert len(logs) == (code is C.INTERNAL)
    assert "secret" not in str(status)


def test_incident_can_be_found_in_the_log() -> None:
    with capture_logs() as logs:
        status = status_of(ZeroDivisionError("the secret cause"), "/x/Y")
    incident = logs[0]["incident"]
    assert incident in status.message
    assert "the secret cause" in logs[0]["trace"]


def test_limit_says_when_to_try_again() -> None:
    status = status_of(errors.Exhausted("x", retry_after=1.5), "/x/Y")
    retry = error_details_pb2.RetryInfo()
    assert status.details[1].Unpack(retry)
    assert retry.retry_delay.ToTimedelta().total_seconds() == 1.5


def test_thousand_violations_fit_into_a_trailer() -> None:
    status = status_of(errors.Invalid(MANY), "/x/Y")
    bad = error_details_pb2.BadRequest()
    status.details[1].Unpack(bad)
    assert status.ByteSize() < 6000
    shown = len(bad.field_violations) - 1
    assert bad.field_violations[-1].description == f"and {1000 - shown} more violations"


async def test_violations_arrive_at_a_client_with_default_settings(
    platform: Any, make_spec: Any, expect_refusal: Any
) -> None:
    ada, spec = await platform.caller("ada"), make_spec("", node_count=99)
    spec.options.tags.extend(f"_{i}" * 20 for i in range(64))
    async with expect_refusal() as why:
        await ada.tasks.CreateTask(pb.CreateTaskRequest(spec=spec))
    assert why[0].code is C.INVALID_ARGUMENT
    assert {"name", "options.tags[0]"} <= {field for field, _ in why[0].violations}
    assert "more violations" in why[0].violations[-1][1]


async def test_unexpected_error_shows_only_its_incident_id(
    platform: Any, expect_refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(platform.task_manager, "unfinished", broken)
    ada = await platform.caller("ada")
    with capture_logs() as logs:
        async with expect_refusal() as why:
            await ada.tasks.ListQueue(pb.ListQueueRequest())
    assert why[0].code is C.INTERNAL
    assert "hunter2" not in str(why[0])
    assert [entry["log_level"] for entry in logs] == ["error"]


async def test_call_that_hangs_is_ended(
    platform: Any, expect_refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(query: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(platform.store, "find_tasks", hang)
    ada = await platform.caller("ada")
    async with expect_refusal() as why:
        await ada.tasks.ListTasks(pb.ListTasksRequest(), timeout=0.05)
    assert why[0].code is C.DEADLINE_EXCEEDED
