"""All webhooks, in memory as in the store: each change of a task asks for those of its owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hai_backend.domain.accounts.webhook import Notice, Webhook
from hai_backend.store.base import Store


class Webhooks:
    """By owner, and by name within those."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: defaultdict[str, dict[str, Webhook]] = defaultdict(dict)

    async def load(self) -> None:
        """Read them; call once, before anything else."""
        for webhook in await self._store.records(Webhook):
            self._known[webhook.owner_name][webhook.name] = webhook

    def of(self, owner: str) -> Sequence[Webhook]:
        """A user's, by name."""
        known = self._known.get(owner, {})
        return [known[name] for name in sorted(known)]

    def get(self, owner: str, name: str) -> Webhook | None:
        """One of them."""
        return self._known.get(owner, {}).get(name)

    async def save(self, webhook: Webhook) -> None:
        """Add it, or replace that of the same name."""
        await self._store.save_record(webhook)
        self._known[webhook.owner_name][webhook.name] = webhook

    async def delete(self, webhook: Webhook) -> None:
        """Forget it, and what it was still to be told."""
        owner, name = webhook.owner_name, webhook.name
        await self._store.delete_record(webhook)
        await self._store.delete_records(Notice, owner_name=owner, webhook=name)
        self._known[webhook.owner_name].pop(webhook.name, None)
