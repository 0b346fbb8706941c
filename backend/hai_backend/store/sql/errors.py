"""Errors of a database in our words, and the one question that matters to a batch: does it concern every write?"""

from __future__ import annotations

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
)

from hai_backend.domain.errors import Conflict, Deposed, HaiError, Invalid, Unavailable, Violation


def concerns_all(error: Exception) -> bool:
    """True when the database failed (disk full, gone), False when one write may be to blame."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    return isinstance(error, OSError | OperationalError | Deposed)


def translated(error: Exception, where: str, doing: str) -> HaiError:
    """The error that a caller gets, naming the database and the cause."""
    if isinstance(error, HaiError):
        return error
    cause = _cause(error)
    if isinstance(error, IntegrityError):
        return Conflict(f"{doing} {where} met another row with the same key: {cause}")
    refused = isinstance(error, ValueError) and not isinstance(error, OSError)  # as a certificate
    if refused or isinstance(error, DataError | OverflowError) or _blames_data(error):
        return Invalid((Violation("value", f"cannot be stored in {where}: {cause}"),))
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        lost = "the connection was lost, so it may have been done or not; trying again is safe"
        return Unavailable(f"{doing} {where} failed: {cause}; {lost}")
    if "disk is full" in cause or "No space left" in cause:
        full = "nothing was changed; an operator must free some space, then try again"
        return Unavailable(f"{doing} {where} failed: {cause}; {full}", reason="DISK_FULL")
    if isinstance(error, SQLAlchemyError | OSError):
        return Unavailable(f"{doing} {where} failed: {cause}; nothing was changed, try again")
    return HaiError(f"{doing} {where} failed: {type(error).__name__}: {error}")


def _blames_data(error: Exception) -> bool:
    """PostgreSQL's data exceptions and limits (a NUL, a key that is too long), which SQLAlchemy tells as any other."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return isinstance(state, str) and state.startswith(("22", "54"))


def _cause(error: Exception) -> str:
    # The driver's words only: SQLAlchemy's own text adds the statement and every parameter.
    inner = getattr(error, "orig", None) or error
    return str(inner).splitlines()[0].rstrip(".") if str(inner) else type(inner).__name__
