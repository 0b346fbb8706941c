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
from hai.v1.webhook_service_pb2 import (
    DeleteWebhookRequest,
    ListWebhooksRequest,
    SetWebhookRequest,
    SetWebhookResponse,
    TestWebhookRequest,
    Webhook,
)
from hai.v1.webhook_service_pb2_grpc import WebhookServiceStub

if TYPE_CHECKING:
    from hai.v1.message_service_pb2_grpc import MessageServiceAsyncStub
    from hai.v1.webhook_service_pb2_grpc import WebhookServiceAsyncStub


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


class Webhooks:
    """Webhooks of the caller."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> WebhookServiceAsyncStub:
        return self._transport.stub(WebhookServiceStub)

    async def list(self) -> Sequence[Webhook]:
        """All, by name."""
        request = ListWebhooksRequest()
        return (await self._transport.unary(self._stub.ListWebhooks, request, retry=True)).webhooks

    async def set(self, webhook: Webhook) -> SetWebhookResponse:
        """Add or replace a webhook. Only the answer about a new one contains its secret."""
        request = SetWebhookRequest(webhook=webhook)
        return await self._transport.unary(self._stub.SetWebhook, request)

    async def delete(self, name: str) -> None:
        """Delete a webhook."""
        await self._transport.unary(self._stub.DeleteWebhook, DeleteWebhookRequest(name=name))

    async def test(self, name: str) -> str:
        """Send a sample now. Returns the error of the receiver; empty: it succeeded."""
        request = TestWebhookRequest(name=name)
        return (await self._transport.unary(self._stub.TestWebhook, request)).error
