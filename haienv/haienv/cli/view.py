"""Shows environments as JSON documents and as tables. docs/environments.md describes the JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hai.client.text.formatting import size_text
from haienv.store.registry import Environment


def environment_document(environment: Environment) -> dict[str, Any]:
    """Return the JSON document of an environment."""
    layer, metadata = environment.layer, environment.metadata
    return {
        "name": environment.name,
        "owner": environment.owner,
        "state": "READY" if environment.is_ready else "BROKEN",
        "message": environment.fault,
        "path": str(environment.path) if environment.layer_id else "",
        "parent": format_parent(environment),
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


def format_parent(environment: Environment) -> str:
    """Return the nearest parent as name[owner], or the site-packages of an extended Python; empty if there is none."""
    if environment.layer is None:
        return ""
    if environment.layer.parents:
        nearest = environment.layer.parents[0]
        return f"{nearest.name}[{nearest.owner}]"
    return environment.layer.sites[0] if environment.layer.sites else ""


_COLUMNS = ("NAME", "OWNER", "PYTHON", "PARENT", "PACKAGES", "SIZE", "STATE", "SHOWN TO", "ABOUT")


def format_table(documents: Sequence[dict[str, Any]]) -> str:
    """Return a table of environments."""
    return align_columns([_COLUMNS, *map(_format_row, documents)])


def _format_row(document: dict[str, Any]) -> tuple[str, ...]:
    return (
        document["name"],
        document["owner"],
        document["python"],
        document["parent"],
        str(document["packages"]),
        size_text(document["size_bytes"]),
        document["state"].lower(),
        f"group {document['group']}"
        if document["visibility"] == "group"
        else document["visibility"],
        f"deprecated: {document['deprecated']}"
        if document["deprecated"]
        else document["description"],
    )


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Return the lines of a table whose columns are aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)) for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def format_value(value: object, separator: str = ", ") -> str:
    """Return a field of a document for people."""
    if isinstance(value, dict):
        return " ".join(f"{k}={v}" for k, v in value.items())
    return separator.join(map(str, value)) if isinstance(value, list) else str(value)
