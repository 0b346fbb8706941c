"""Lists and tags the revisions of workspaces."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from hai.v1 import workspace_service_pb2 as pb
from hai_backend.api.request import limits, paging
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.workspaces.access import Workspaces
from hai_backend.api.workspaces.convert import revision_to_proto
from hai_backend.domain.workspace import Revision
from hai_backend.workspaces import tags
from hai_backend.workspaces.registry import OpenWorkspace

_AFTER_ALL = 1 << 62  # a number above all revisions
_NAME = re.compile(r"(?![0-9]+$)[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_RULE = "at most 63 letters, digits, `.`, `_`, `-`, beginning with a letter or digit, and not digits alone"


class Revisions:
    """Lists and tags revisions. `confirm` raises Deposed if another server leads: then nothing may be changed."""

    def __init__(self, workspaces: Workspaces, confirm: Callable[[], Awaitable[None]]) -> None:
        self._workspaces = workspaces
        self._confirm = confirm

    async def page(
        self, workspace: OpenWorkspace, request: pb.ListRevisionsRequest
    ) -> pb.ListRevisionsResponse:
        """Return a page of revisions, newest first, with the tasks that run on them."""
        size = paging.page_size(request.page_size, limits.DEFAULT_PAGE_SIZE)
        found = await self._workspaces.registry.run(
            workspace.files.path,
            workspace.files.index.list_revisions,
            before=paging.read_number(request.page_token) or _AFTER_ALL,
            limit=size + 1,
            tagged=request.tagged,
        )
        pins = self._workspaces.pins(workspace.key)
        keyed = ((str(r.number), revision_to_proto(r, pins.get(r.number, ()))) for r in found)
        revisions, token = paging.take_page(keyed, size)
        return pb.ListRevisionsResponse(revisions=revisions, next_page_token=token)

    async def tag(
        self, workspace: OpenWorkspace, number: int, name: str, *, force: bool
    ) -> Revision:
        """Tag a revision. Raises NotFound, Invalid, Conflict or Exhausted."""
        violations = FieldViolations()
        violations.check_pattern("tag", name, _NAME, _RULE)
        violations.raise_if_any()
        async with workspace.change_lock:
            await self._confirm()
            return await self._workspaces.registry.run(
                workspace.files.path, tags.tag, workspace.files, name, number, force=force
            )

    async def untag(self, workspace: OpenWorkspace, name: str) -> None:
        """Remove a tag. Raises NotFound."""
        async with workspace.change_lock:
            await self._confirm()
            await self._workspaces.registry.run(
                workspace.files.path, tags.untag, workspace.files, name[:64]
            )
