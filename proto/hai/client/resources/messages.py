"""Messages of operators to users."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.v1.message_service_pb2 import (
    CreateMessageRequest,
    DeleteMessageRequest,
    ListMessagesRequest,
    Message,
)
from hai.v1.message_service_pb2_grpc import MessageServiceStub

if TYPE_CHECKING:
    from hai.v1.message_service_pb2_grpc import MessageServiceAsyncStub


class Messages:
    """Messages for the caller; operators create them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> MessageServiceAsyncStub:
        return self._transport.stub(MessageServiceStub)

    async def list(self, *, all: bool = False) -> Sequence[Message]:
        """Messages for the caller that have not expired, newest first; or all of them."""
        request = ListMessagesRequest(all=all)
        return (await self._transport.unary(self._stub.ListMessages, request, retry=True)).messages

    async def create(self, message: Message) -> Message:
        """Send a message to a user, a user group, or everybody."""
        request = CreateMessageRequest(message=message)
        return await self._transport.unary(self._stub.CreateMessage, request)

    async def delete(self, id: int) -> None:
        """Delete a message."""
        await self._transport.unary(self._stub.DeleteMessage, DeleteMessageRequest(id=id))
