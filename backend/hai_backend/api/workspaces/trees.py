"""Serves trees to clients: the entries of a revision or of a task's directory, and their contents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import aclosing
from typing import TypeVar

from hai.v1 import workspace_service_pb2 as pb
from hai_backend.api.workspaces.access import Workspaces
from hai_backend.api.workspaces.convert import bundle_to_proto, passed_over_to_proto, tree_to_proto
from hai_backend.domain.errors import Invalid, NotFound, Violation
from hai_backend.domain.workspace import Entry, PassedOver, Revision
from hai_backend.workspaces import checkouts, read
from hai_backend.workspaces.push.staging import PROGRAMS, Author
from hai_backend.workspaces.registry import OpenWorkspace
from hai_backend.workspaces.storage import prefetch, tree_scan

Item = TypeVar("Item")


class Trees:
    """Reads trees in threads, page by page."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._clock = workspaces.clock
        self._registry = workspaces.registry

    async def stream_tree(
        self, workspace: OpenWorkspace, request: pb.GetTreeRequest
    ) -> AsyncGenerator[pb.GetTreeResponse]:
        """Stream a tree, or the differences from an older revision, in at least one message. Raises NotFound."""
        passed_over = PassedOver()
        revision = await self._resolve_revision(workspace, request, passed_over)
        if request.since:
            await self._require_history(workspace, request.since)
        has_sent = False
        async with aclosing(
            self._in_threads(workspace, _pages(workspace, request, revision))
        ) as pages:
            async for page in pages:
                for response in tree_to_proto(revision, page):
                    has_sent = True
                    yield response
        for response in passed_over_to_proto(revision, passed_over):
            has_sent = True
            yield response
        if not has_sent:
            yield pb.GetTreeResponse(revision=revision)

    async def _resolve_revision(
        self, workspace: OpenWorkspace, request: pb.GetTreeRequest, passed_over: PassedOver
    ) -> int:
        if request.task:
            return 0
        if request.revision:
            return await self.require_revision(workspace, request.revision)
        return (await self.scan(workspace, passed_over)).number

    async def require_revision(self, workspace: OpenWorkspace, number: int) -> int:
        """Return the number if the revision exists. Raises NotFound."""
        await self._registry.run(workspace.files.path, workspace.files.get_revision, number)
        return number

    async def _require_history(self, workspace: OpenWorkspace, since: int) -> None:
        """Check that a revision is retained, because removals after it are deleted with it. Raises NotFound."""
        if (
            await self._registry.run(
                workspace.files.path, workspace.files.index.get_revision, since
            )
            is None
        ):
            problem = f"revision {since} is no longer retained; request the complete tree"
            raise NotFound(problem, reason="REVISION_GONE")

    async def scan(
        self,
        workspace: OpenWorkspace,
        passed_over: PassedOver,
        paths: Collection[str] | None = None,
    ) -> Revision:
        """Scan for what programs wrote, and return the newest revision. `paths` limits the scan to these paths."""
        author = Author(PROGRAMS, self._clock.now())
        async with workspace.change_lock:
            previous = await self._registry.run(
                workspace.files.path, workspace.files.index.newest_revision
            )
            newest = await self._registry.run(
                workspace.files.path,
                tree_scan.scan_tree,
                workspace.files,
                author,
                passed_over,
                paths,
            )
        if newest.number != previous.number:
            workspace.notify_change()
            self._workspaces.collect_periodically(workspace.key)
        return newest

    async def fetch(
        self, workspace: OpenWorkspace, request: pb.FetchFilesRequest
    ) -> AsyncGenerator[pb.FetchFilesResponse]:
        """Stream the contents of files. Raises NotFound, Invalid or Conflict."""
        if len(request.offsets) not in (0, len(request.paths)):
            problem = "must be as many as paths, or none"
            raise Invalid((Violation("offsets", problem),))
        source: prefetch.FileSource = checkouts.TaskFiles(workspace.files, request.task)
        if not request.task:
            revision = await self.require_revision(workspace, max(request.revision, 1))
            source = read.RevisionFiles(workspace.files, revision)
        bundles = read.read_files(
            source, request.paths, request.offsets, compress=request.accept_compressed
        )
        async with aclosing(self._in_threads(workspace, bundles)) as bundles_made:
            async for bundle in bundles_made:
                yield bundle_to_proto(bundle)

    async def _in_threads(
        self, workspace: OpenWorkspace, items: Generator[Item]
    ) -> AsyncGenerator[Item]:
        """Yield items that are produced one by one in threads. Close the generator in a thread, too."""
        step: Callable[[], Item | None] = lambda: next(items, None)  # noqa: E731 - a name for mypy
        try:
            while (item := await self._registry.run(workspace.files.path, step)) is not None:
                yield item
        finally:
            await self._registry.run(workspace.files.path, items.close)


def _pages(
    workspace: OpenWorkspace, request: pb.GetTreeRequest, revision: int
) -> Generator[list[Entry]]:
    if request.task:
        return checkouts.list_written_files(workspace.files, request.task)
    if request.since:
        return workspace.files.index.iterate_changes(request.since, revision)
    return workspace.files.index.iterate_tree(revision)
