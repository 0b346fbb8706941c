"""MessageService: announcements of operators to users. server/methods.py lists who may create them."""

from __future__ import annotations

import asyncio

from hai.v1 import message_service_pb2 as pb
from hai.v1.message_service_pb2_grpc import MessageServiceServicer
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.api.request.field_checks import NAME, FieldViolations
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.users.convert import NAME_RULE, read_expiry
from hai_backend.auth.directory import Directory
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.message import Message
from hai_backend.domain.errors import Denied, NotFound
from hai_backend.store.base import Store

_TEXT_CHARS = 2000


class MessageService(MessageServiceServicer):
    """See proto/hai/v1/message_service.proto for what each call means."""

    def __init__(self, store: Store, directory: Directory, clock: Clock) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._write_lock = asyncio.Lock()

    async def ListMessages(
        self, request: pb.ListMessagesRequest, context: Context
    ) -> pb.ListMessagesResponse:
        identity, now = current_caller(), self._clock.now()
        if request.all and not identity.operates:
            raise Denied("all messages are for operators only", reason="ROLE_TOO_LOW")
        visible = (
            message
            for message in reversed(await self._store.records(Message))
            if request.all or (_is_current(message, now) and message.concerns(identity.user))
        )
        return pb.ListMessagesResponse(messages=map(_to_proto, visible))

    async def CreateMessage(self, request: pb.CreateMessageRequest, context: Context) -> pb.Message:
        requested, now = request.message, self._clock.now()
        expires_at = _check(requested, now)
        if requested.subject and not requested.subject_is_group:
            self._directory.user(requested.subject)
        async with self._write_lock:
            number = 1 + max((m.id for m in await self._store.records(Message)), default=0)
            new = Message(
                number,
                requested.subject,
                requested.subject_is_group,
                requested.text,
                current_caller().name,
                now,
                expires_at,
            )
            await self._store.save_record(new)
        return _to_proto(new)

    async def DeleteMessage(
        self, request: pb.DeleteMessageRequest, context: Context
    ) -> pb.DeleteMessageResponse:
        if not await self._store.delete_record(Message(request.id, "", False, "", "", 0.0)):
            raise NotFound(f"there is no message {request.id}; `hai message list --all` shows all")
        return pb.DeleteMessageResponse()


def _check(message: pb.Message, now: float) -> float | None:
    """Check a new message and return when it expires. Raises Invalid with every violation."""
    violations = FieldViolations()
    if message.subject or message.subject_is_group:
        violations.check_pattern("message.subject", message.subject, NAME, NAME_RULE)
    if not message.text.strip():
        violations.add("message.text", "is required")
    violations.check_line("message.text", message.text, _TEXT_CHARS)
    expires_at = read_expiry("message.expire_time", message, now, violations)
    violations.raise_if_any()
    return expires_at


def _is_current(message: Message, now: float) -> bool:
    return message.expires_at is None or now < message.expires_at


def _to_proto(message: Message) -> pb.Message:
    return pb.Message(
        id=message.id,
        subject=message.subject,
        subject_is_group=message.subject_is_group,
        text=message.text,
        author=message.author,
        create_time=to_timestamp(message.created_at),
        expire_time=to_timestamp(message.expires_at),
    )
