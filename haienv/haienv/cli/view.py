"""Environments as JSON documents and as tables. docs/environments.md describes the JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hai.client.text.formatting import size_text
from haienv.store.registry import Environment


def as_dict(found: Environment) -> dict[str, Any]:
    """The JSON document of an environment."""
    layer, metadata = found.layer, found.metadata
    return {
        "name": found.name,
        "owner": found.owner,
        "state": "READY" if found.ready else "BROKEN",
        "message": found.fault,
        "path": str(found.path) if found.layer_id else "",
        "parent": parent(found),
        "python": layer.python if layer else "",
        "lock_hash": layer.lock_hash if layer else "",
        "visibility": metadata.visibility,
        "group": metadata.group,
        "packages": layer.packages if layer else 0,
        "size_bytes": layer.size_bytes if layer else 0,
        "backend": layer.backend if layer else "",
        "description": metadata.description,
        "tags": list(metadata.tags),
        "deprecated": metadata.deprecated,
        "created": metadata.created.isoformat(),
        "updated": metadata.updated.isoformat(),
    }


def parent(found: Environment) -> str:
    """The nearest parent as name[owner], or the site-packages of an extended Python; empty if there is none."""
    if found.layer is None:
        return ""
    if found.layer.parents:
        nearest = found.layer.parents[0]
        return f"{nearest.name}[{nearest.owner}]"
    return found.layer.sites[0] if found.layer.sites else ""


_HEADS = ("NAME", "OWNER", "PYTHON", "PARENT", "PACKAGES", "SIZE", "STATE", "SHOWN TO", "ABOUT")


def table(found: Sequence[dict[str, Any]]) -> str:
    """A table of environments."""
    return aligned([_HEADS, *map(_row, found)])


def _row(facts: dict[str, Any]) -> tuple[str, ...]:
    return (
        facts["name"],
        facts["owner"],
        facts["python"],
        facts["parent"],
        str(facts["packages"]),
        size_text(facts["size_bytes"]),
        facts["state"].lower(),
        f"group {facts['group']}" if facts["visibility"] == "group" else facts["visibility"],
        f"deprecated: {facts['deprecated']}" if facts["deprecated"] else facts["description"],
    )


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)) for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def value_text(value: object, separator: str = ", ") -> str:
    """A field of a document for people."""
    if isinstance(value, dict):
        return " ".join(f"{k}={v}" for k, v in value.items())
    return separator.join(map(str, value)) if isinstance(value, list) else str(value)
