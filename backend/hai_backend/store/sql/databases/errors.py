"""Translates errors of a database driver to errors of the domain."""

from __future__ import annotations

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
)

from hai_backend.domain.errors import Conflict, Deposed, HaiError, Invalid, Unavailable, Violation


def is_database_failure(error: Exception) -> bool:
    """Return whether every command would fail, as on a full disk. Otherwise one command may be the cause."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    return isinstance(error, OSError | OperationalError | Deposed)


def translate_error(error: Exception, database: str, operation: str) -> HaiError:
    """Return the error for the caller. Its message names the database and the cause."""
    if isinstance(error, HaiError):
        return error
    cause = _cause(error)
    if isinstance(error, IntegrityError):
        return Conflict(f"{operation} {database} met another row with the same key: {cause}")
    # A certificate error is both a ValueError and an OSError. It says nothing about the value.
    invalid_value = isinstance(error, ValueError) and not isinstance(error, OSError)
    if invalid_value or isinstance(error, DataError | OverflowError) or _is_data_exception(error):
        return Invalid((Violation("value", f"cannot be stored in {database}: {cause}"),))
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        lost = "the connection was lost, so it may have been done or not; trying again is safe"
        return Unavailable(f"{operation} {database} failed: {cause}; {lost}")
    if "disk is full" in cause or "No space left" in cause:
        full = "nothing was changed; an operator must free some space, then try again"
        return Unavailable(f"{operation} {database} failed: {cause}; {full}", reason="DISK_FULL")
    if isinstance(error, SQLAlchemyError | OSError):
        return Unavailable(
            f"{operation} {database} failed: {cause}; nothing was changed, try again"
        )
    return HaiError(f"{operation} {database} failed: {type(error).__name__}: {error}")


def _is_data_exception(error: Exception) -> bool:
    """Return whether PostgreSQL refused a value, such as a NUL or a key that is too long.

    SQLAlchemy has no class for this error.
    """
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return isinstance(state, str) and state.startswith(("22", "54"))


def _cause(error: Exception) -> str:
    # The message of the driver. SQLAlchemy's message would add the statement and every parameter.
    cause = getattr(error, "orig", None) or error
    return str(cause).splitlines()[0].rstrip(".") if str(cause) else type(cause).__name__
