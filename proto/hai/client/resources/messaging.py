"""Messages of operators to users, and webhooks that notify URLs of changes to the caller's tasks."""

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
    """Calls about messages for the caller. Operators create them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> MessageServiceAsyncStub:
        return self._transport.stub(MessageServiceStub)

    async def list(self, *, all: bool = False) -> Sequence[Message]:
        """Return the messages for the caller that have not expired, or all messages, newest first."""
        request = ListMessagesRequest(all=all)
        return (await self._transport.unary(self._stub.ListMessages, request, retry=True)).messages

    async def create(self, message: Message) -> Message:
        """Send a message to a user, a user group, or all users."""
        request = CreateMessageRequest(message=message)
        return await self._transport.unary(self._stub.CreateMessage, request)

    async def delete(self, id: int) -> None:
        """Delete a message."""
        await self._transport.unary(self._stub.DeleteMessage, DeleteMessageRequest(id=id))


class Webhooks:
    """Calls about webhooks of the caller."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> WebhookServiceAsyncStub:
        return self._transport.stub(WebhookServiceStub)

    async def list(self) -> Sequence[Webhook]:
        """Return all webhooks, by name."""
        request = ListWebhooksRequest()
        return (await self._transport.unary(self._stub.ListWebhooks, request, retry=True)).webhooks

    async def set(self, webhook: Webhook) -> SetWebhookResponse:
        """Add or replace a webhook. The answer contains the secret only if the webhook is new."""
        request = SetWebhookRequest(webhook=webhook)
        return await self._transport.unary(self._stub.SetWebhook, request)

    async def delete(self, name: str) -> None:
        """Delete a webhook."""
        await self._transport.unary(self._stub.DeleteWebhook, DeleteWebhookRequest(name=name))

    async def test(self, name: str) -> str:
        """Send a sample event now. Return the error of the receiver, or an empty string."""
        request = TestWebhookRequest(name=name)
        return (await self._transport.unary(self._stub.TestWebhook, request)).error
