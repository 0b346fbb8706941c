"""Moved; re-exported until the last import follows."""

from hai.client.connection.cancellation import (
    cancelled_only_from_outside as cancelled_only_from_outside,
)
