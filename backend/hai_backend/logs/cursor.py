"""The position of a reader in the logs of a task: one offset per run and rank, packed into an opaque string."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field

from hai_backend.domain.errors import Invalid, Violation


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the logs of a task.

    `positions[run, rank]` is the offset of the next byte. Runs up to `floor` have ended and were read completely.
    """

    ranks: tuple[int, ...] = ()
    run: int = 0
    floor: int = 0
    positions: dict[tuple[int, int], int] = field(default_factory=dict)


def encode(cursor: Cursor) -> str:
    """Return the cursor as a string that is safe in URLs."""
    rows: dict[int, list[int]] = {}
    for (run, rank), position in sorted(cursor.positions.items()):
        rows.setdefault(run, []).extend((rank, position))
    packed = [list(cursor.ranks), cursor.run, cursor.floor, [[k, *v] for k, v in rows.items()]]
    return base64.urlsafe_b64encode(json.dumps(packed, separators=(",", ":")).encode()).decode()


def decode(text: str) -> Cursor:
    """Return the cursor from a string of `encode`. Raises Invalid."""
    try:
        ranks, run, floor, rows = json.loads(base64.b64decode(text, altchars=b"-_", validate=True))
        positions = {
            (_natural(row[0]), _natural(rank)): _natural(position)
            for row in rows
            for rank, position in zip(row[1::2], row[2::2], strict=True)
        }
        requested = tuple(_natural(rank) for rank in ranks)
        return Cursor(requested, _natural(run), _natural(floor), positions)
    except (ValueError, TypeError, IndexError, KeyError, RecursionError, binascii.Error) as error:
        raise _invalid("is not one that this server gave; read again without a cursor") from error


def matching(text: str, ranks: tuple[int, ...], run: int) -> Cursor:
    """Return the cursor of a request, or a new one if `text` is empty.

    Raises Invalid if the cursor is from a request for other ranks or another run.
    """
    if not text:
        return Cursor(ranks, run)
    cursor = decode(text)
    if (cursor.ranks, cursor.run) != (ranks, run):
        raise _invalid("belongs to a request for other ranks or another run; read without a cursor")
    return cursor


def _natural(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no offset")
    return value


def _invalid(message: str) -> Invalid:
    return Invalid((Violation("cursor", message),), reason="BAD_CURSOR")
