"""All webhooks, in memory and in the store. They are in memory because each change of a task looks them up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hai_backend.domain.accounts.webhook import Notice, Webhook
from hai_backend.store.base import Store


class Webhooks:
    """The webhooks by owner and name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: defaultdict[str, dict[str, Webhook]] = defaultdict(dict)

    async def load(self) -> None:
        """Read all webhooks. Must be called once, before all other methods."""
        for webhook in await self._store.records(Webhook):
            self._known[webhook.owner_name][webhook.name] = webhook

    def of(self, owner: str) -> Sequence[Webhook]:
        """Return the webhooks of a user, ordered by name."""
        known = self._known.get(owner, {})
        return [known[name] for name in sorted(known)]

    def get(self, owner: str, name: str) -> Webhook | None:
        """Return a webhook, or None if there is none with this name."""
        return self._known.get(owner, {}).get(name)

    async def save(self, webhook: Webhook) -> None:
        """Store a webhook, or replace the one with the same name."""
        await self._store.save_record(webhook)
        self._known[webhook.owner_name][webhook.name] = webhook

    async def delete(self, webhook: Webhook) -> None:
        """Delete a webhook and its pending notices."""
        owner, name = webhook.owner_name, webhook.name
        await self._store.delete_record(webhook)
        await self._store.delete_records(Notice, owner_name=owner, webhook=name)
        self._known[webhook.owner_name].pop(webhook.name, None)
