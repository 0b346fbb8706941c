"""`hai webhook …`: addresses that the server notifies about tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_webhooks
from hai_tui.cli.output.output import note, show, show_one
from hai_tui.cli.prompts import read_secret
from hai_tui.cli.settings import Settings, call_server, with_client
from hai_tui.views.accounts import WEBHOOK_FORMATS, WEBHOOKS

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.webhook_service_pb2 import SetWebhookResponse, Webhook

_EVENTS = ("started", "suspended", "ended", "failed")
_NAME = click.argument("name", shell_complete=complete_webhooks)


@click.group("webhook", cls=HaiGroup)
def webhook() -> None:
    """Get notified when tasks start, are suspended, end or fail."""


@webhook.command("list", cls=TableCommand)
@with_client
async def list_webhooks(settings: Settings, client: Client) -> None:
    """List your webhooks, and how the last request to each went."""
    show(settings, WEBHOOKS, await client.webhooks.list())


@webhook.command("set", cls=HaiCommand)
@_NAME
@click.argument("url", required=False)
@click.option(
    "--on", "events", multiple=True, type=click.Choice(_EVENTS), help="Default of a new one: ended."
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(WEBHOOK_FORMATS),
    help="Default of a new one: json.",
)
@click.option("--tag", help="Only tasks with this tag; '' for all.")
@click.pass_obj
def set_webhook(
    settings: Settings,
    /,
    name: str,
    url: str | None,
    events: tuple[str, ...],
    format_name: str | None,
    tag: str | None,
) -> int:
    """Let the server notify URL about your tasks.

    Options that are not given stay as they are. If the URL is secret, give - and type
    or pipe it. Mattermost accepts the format of Slack, WeCom that of DingTalk. Requests
    in JSON are signed; the secret is shown once.

    \b
    Examples:
      hai webhook set phone https://hooks.slack.com/services/T0/B0/XX --format slack
      hai webhook set phone --on failed --on suspended
      hai webhook set sweeps https://example.org/hook --tag sweep --on ended
      pass show hook | hai webhook set phone - --format feishu
    """
    url = read_secret("URL").strip() if url == "-" else url

    async def work(client: Client) -> int:
        found = await _find(client, name)
        if events:
            found.ClearField("news")
            found.news.extend(events)
        for key, value in (("url", url), ("format", format_name), ("tag", tag)):
            if value is not None:
                setattr(found, key, value)
        _show_set(settings, await client.webhooks.set(found))
        return 0

    return call_server(settings, work)


async def _find(client: Client, name: str) -> Webhook:
    """Return the webhook of the server, or a new one."""
    from hai.v1.webhook_service_pb2 import Webhook

    found = (known for known in await client.webhooks.list() if known.name == name)
    return next(found, Webhook(name=name))


def _show_set(settings: Settings, answer: SetWebhookResponse) -> None:
    """Print the webhook, and the secret of its signatures if it is new."""
    if settings.structured:
        from hai_tui.cli.output.output import dump
        from hai_tui.formatting.documents import to_dict

        dump(settings, to_dict(answer))
        return
    show_one(settings, WEBHOOKS, answer.webhook)
    note(settings, f"`hai webhook test {answer.webhook.name}` sends a sample")
    if answer.secret:
        note(settings, "requests are signed with this secret, which is shown this once:")
        click.echo(answer.secret)


@webhook.command("test", cls=HaiCommand)
@_NAME
@with_client
async def test(settings: Settings, client: Client, name: str) -> int:
    """Send a sample now; fail if it is not accepted."""
    if error := await client.webhooks.test(name):
        click.echo(f"hai: {error}", err=True)
        return 1
    note(settings, f"webhook {name} has accepted the sample")
    return 0


@webhook.command("delete", cls=HaiCommand)
@_NAME
@with_client
async def delete(settings: Settings, client: Client, name: str) -> None:
    """Delete a webhook and its pending notifications."""
    await client.webhooks.delete(name)
    note(settings, f"webhook {name} is deleted")
