"""Decides which links that lead out of a workspace are synced, and why others are skipped.

A link that stays inside is always synced. One that leads out by a relative path would lead elsewhere on the cluster,
so it is never synced as a link.
"""

from __future__ import annotations

from enum import StrEnum


class Links(StrEnum):
    """What happens to links that lead out."""

    AUTO = "auto"  # synced as a link if the target exists on the cluster
    KEEP = "keep"
    SKIP = "skip"
    COPY = "copy"  # the target is synced in place of the link


def leads_out(path: str, target: str) -> bool:
    """Whether a link at a path of the workspace leads out of it. Nothing is followed."""
    if target.startswith("/"):
        return True
    depth = path.count("/")
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return True
    return False


def why_skipped(links: Links, target: str, on_cluster: bool) -> str:
    """Why a link that leads out is skipped; empty: it is synced as a link."""
    if links is Links.SKIP:
        return f"it leads out of the workspace, to {target}"
    if links is Links.COPY:
        return f"it leads to {target}, where nothing is that could be copied"
    if not target.startswith("/"):
        return f"it leads out of the workspace, to {target}; --links copy syncs what is there"
    if links is Links.KEEP or on_cluster:
        return ""
    return f"it leads to {target}, which is not known on the cluster; --links keep or copy syncs it"
