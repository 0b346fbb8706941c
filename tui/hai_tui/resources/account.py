"""Resources of the caller: tokens, messages, ports."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hai_tui.i18n import text
from hai_tui.resources.resource_spec import (
    IS_GROUP,
    Answers,
    Field,
    ResourceSpec,
    Verb,
    delete_verb,
)
from hai_tui.views.accounts import MESSAGES, TOKENS
from hai_tui.views.containers import PORTS

if TYPE_CHECKING:
    from hai.v1.message_service_pb2 import Message
    from hai.v1.user_pb2 import Token

SCOPES = ("all", "read", "submit")


def _token_request(item: Any, answers: Answers) -> dict[str, Any]:
    from hai.v1.user_pb2 import TokenScope

    scope = answers.choice("scope", SCOPES)
    return {
        "user": answers.text("user"),
        "holder": answers.text("holder"),
        "scope": TokenScope.Value(f"TOKEN_SCOPE_{scope.upper()}"),
        "description": answers.text("description"),
        "expire_time": answers.time("expires"),
    }


def _token_secret_text(token: Token) -> str:
    return text("token.secret", id=token.id, secret=token.secret)


def _message(item: Any, answers: Answers) -> Message:
    from hai.v1.message_service_pb2 import Message

    message = Message(
        text=answers.text("text"),
        subject=answers.text("subject"),
        subject_is_group=answers.flag("subject_is_group"),
    )
    answers.set_expiry(message)
    return message


RESOURCES = (
    ResourceSpec(
        "tokens",
        TOKENS,
        lambda client: client.users.tokens(),
        (
            Verb(
                "a",
                "new",
                lambda client, request: client.users.create_token(**request),
                _token_request,
                (
                    Field("description"),
                    Field("scope", lambda item: "all", SCOPES),
                    Field("expires", lambda item: "30d", violation="expire_time"),
                    Field("user"),
                    Field("holder"),
                ),
                new=True,
                result_text=_token_secret_text,
                clipboard_text=attrgetter("secret"),
            ),
            delete_verb(lambda client, token: client.users.revoke_token(token.id), name="revoke"),
        ),
    ),
    ResourceSpec(
        "messages",
        MESSAGES,
        lambda client: client.messages.list(),
        (
            Verb(
                "a",
                "send",
                lambda client, message: client.messages.create(message),
                _message,
                (
                    Field("text"),
                    Field("subject"),
                    IS_GROUP,
                    Field("expires", lambda item: "7d", violation="expire_time"),
                ),
                new=True,
                role="operator",
            ),
            delete_verb(
                lambda client, message: client.messages.delete(message.id), role="operator"
            ),
        ),
    ),
    ResourceSpec(
        "ports",
        PORTS,
        lambda client: client.ports.list(),
        (
            Verb(
                "a",
                "new",
                lambda client, port: client.ports.create(**port),
                lambda item, answers: {
                    "task_name": answers.text("task_name"),
                    "service": answers.text("service"),
                    "node_port": answers.number("node_port"),
                },
                (Field("task_name"), Field("service"), Field("node_port")),
                new=True,
            ),
            Verb(
                "e",
                "bind",
                lambda client, binding: client.ports.bind(*binding),
                lambda port, answers: (
                    port.node_port,
                    answers.text("task_name"),
                    answers.text("service"),
                ),
                (
                    Field("task_name", lambda port: port.task_name),
                    Field("service", lambda port: port.service),
                ),
            ),
            delete_verb(lambda client, port: client.ports.delete(port.node_port)),
        ),
    ),
)
