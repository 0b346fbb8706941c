"""The demo cluster with a hostile text in every field: brackets, links, control codes of a terminal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from google.protobuf.message import Message

from hai_tui.demo_cluster.cluster import DemoClient, demo

BEGIN, END = "[/b][red", "[@click=app.quit]x\x1b[31m\x07\u202e"
"""`[/b]` ends an app that takes it for markup; what else stands there would be taken for a colour, a link, a code."""

_READ = {
    *("task_type", "version", "etag", "page_token", "next_page_token", "type", "cursor"),
    *("cron", "policy", "secret", "token", "begin", "basis", "kind"),
}
"""Fields that programs read."""


def change(message: Message, with_text: Callable[[str], str]) -> Message:
    """Return a copy of a message with `with_text` applied to each of its texts."""
    made = type(message)()
    made.CopyFrom(message)
    _change(made, with_text)
    return made


def _change(message: Any, with_text: Callable[[str], str]) -> None:
    if message.DESCRIPTOR.full_name.startswith("google."):
        return
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in value:
                if isinstance(value[key], str):
                    value[key] = with_text(value[key])
        elif field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                _change(part, with_text)
        elif field.type == field.TYPE_STRING and field.name not in _READ:
            if field.is_repeated:
                value[:] = [with_text(each) for each in value]
            else:
                setattr(message, field.name, with_text(value))


def hostile(text: str) -> str:
    """Return the text inside markup and control codes."""
    return f"{BEGIN}{text}{END}" if text else text


def tame(text: str) -> str:
    """Return the text without the additions of `hostile`."""
    return text.replace(BEGIN, "").replace(END, "")


class _Hostile:
    """Makes the texts of answers hostile, and restores the texts of requests."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def unary(self, call: Any, request: Any, **how: Any) -> Any:
        answer = await self._transport.unary(call, change(request, tame), **how)
        return change(answer, hostile)

    async def stream(self, call: Any, request: Any) -> AsyncGenerator[Any, None]:
        async for answer in self._transport.stream(call, change(request, tame)):
            yield change(answer, hostile)


async def hostile_demo() -> DemoClient:
    """Return the client of the demo cluster with hostile texts in all later answers."""
    client = await demo()
    tame_one = client._transport
    hostile_one = _Hostile(tame_one)
    for part in (client, *vars(client).values()):
        for name, value in list(getattr(part, "__dict__", {}).items()):
            if value is tame_one:
                setattr(part, name, hostile_one)
    return client
