"""Changes on their way to the server, with the right to write there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hai_sync.core.diff import Change
from hai_sync.file_fingerprint import Signature
from hai_sync.identity import author, client_id
from hai_sync.remote.endpoint import Remote
from hai_sync.remote.uploader import JOBS, Order, Progress, Sent, push
from hai_sync.session.options import SyncOptions
from hai_sync.workspace_dir import WorkspaceDir


@dataclass(frozen=True, slots=True)
class PushChanges:
    """Changes of the other side that are to be made."""

    place: WorkspaceDir
    changes: Sequence[Change]
    sources: Mapping[str, str]  # of conflict copies and copied links: where their content lies
    seen: Mapping[str, Signature]
    revision: int
    wish: SyncOptions
    memory: str  # the name of our index
    compressed: bool = True

    async def push(
        self, remote: Remote, progress: Progress, all_sent: Callable[[Sent], None]
    ) -> Sent:
        """As in `remote.uploader`. Whoever was killed here while it wrote does not stand in the way."""
        wish, us = self.wish, client_id(self.memory)
        async with remote.lease(wish.purpose, wish.break_lease, us) as token:
            return await push(remote, self._order(token), progress, all_sent)

    def _order(self, token: str) -> Order:
        return Order(
            self.place.root,
            self.changes,
            self.revision,
            token,
            author(self.wish.purpose),
            self.sources,
            self.compressed,
            allow_many_removals=True,  # guarded before, by the same rule
            jobs=self.wish.jobs or JOBS,
            seen=self.seen,
        )
