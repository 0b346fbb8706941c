"""What belongs to the caller: tokens, messages, ports."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hai_tui.i18n import text
from hai_tui.resources.resource_spec import Answers, Field, ResourceSpec, Verb
from hai_tui.resources.subject_fields import IS_GROUP
from hai_tui.views.accounts import MESSAGES, TOKENS
from hai_tui.views.containers import PORTS

if TYPE_CHECKING:
    from hai.v1.message_service_pb2 import Message
    from hai.v1.user_pb2 import Token

SCOPES = ("all", "read", "submit")


def _token(item: Any, answers: Answers) -> dict[str, Any]:
    from hai.v1.user_pb2 import TokenScope

    scope = answers.choice("scope", SCOPES)
    return {
        "user": answers.text("user"),
        "holder": answers.text("holder"),
        "scope": TokenScope.Value(f"TOKEN_SCOPE_{scope.upper()}"),
        "description": answers.text("description"),
        "expire_time": answers.time("expires"),
    }


def _secret(token: Token) -> str:
    return text("token.secret", id=token.id, secret=token.secret)


def _message(item: Any, answers: Answers) -> Message:
    from hai.v1.message_service_pb2 import Message

    new = Message(
        text=answers.text("text"),
        subject=answers.text("subject"),
        subject_is_group=answers.flag("subject_is_group"),
    )
    if (until := answers.time("expires")) is not None:
        new.expire_time.FromDatetime(until)
    return new


RESOURCES = (
    ResourceSpec(
        "tokens",
        TOKENS,
        lambda client: client.users.tokens(),
        (
            Verb(
                "a",
                "new",
                lambda client, made: client.users.create_token(**made),
                _token,
                (
                    Field("description"),
                    Field("scope", lambda item: "all", SCOPES),
                    Field("expires", lambda item: "30d", violation="expire_time"),
                    Field("user"),
                    Field("holder"),
                ),
                new=True,
                result_text=_secret,
                clipboard_text=attrgetter("secret"),
            ),
            Verb(
                "ctrl+d",
                "revoke",
                lambda client, t: client.users.revoke_token(t.id),
                needs_confirmation=True,
            ),
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
                lambda client, made: client.messages.create(made),
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
            Verb(
                "ctrl+d",
                "delete",
                lambda client, m: client.messages.delete(m.id),
                needs_confirmation=True,
                role="operator",
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
                lambda client, made: client.ports.create(**made),
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
                lambda client, made: client.ports.bind(*made),
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
            Verb(
                "ctrl+d",
                "delete",
                lambda client, port: client.ports.delete(port.node_port),
                needs_confirmation=True,
            ),
        ),
    ),
)
