"""Decides which outward links (links that lead out of a workspace) are synced, and why others are skipped.

A link that stays inside is always synced. An outward link with a relative path would lead to another place on the
cluster, so it is never synced as a link.
"""

from __future__ import annotations

from enum import StrEnum


class Links(StrEnum):
    """What happens to outward links."""

    AUTO = "auto"  # synced as a link if the target exists on the cluster, else skipped
    KEEP = "keep"
    SKIP = "skip"
    COPY = "copy"  # the target is synced in place of the link


def is_outward(path: str, target: str) -> bool:
    """Return whether a link at a path of the workspace leads out of it. No link is followed."""
    if target.startswith("/"):
        return True
    depth = path.count("/")
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return True
    return False


def skip_reason(links: Links, target: str, on_cluster: bool) -> str:
    """Return why an outward link is skipped, or an empty string if it is synced as a link."""
    if links is Links.SKIP:
        return f"it leads out of the workspace, to {target}"
    if links is Links.COPY:
        return f"it leads to {target}, which cannot be copied"
    if not target.startswith("/"):
        return f"it leads out of the workspace, to {target}; --links copy syncs its target"
    if links is Links.KEEP or on_cluster:
        return ""
    return f"it leads to {target}, which is not known on the cluster; --links keep or copy syncs it"
