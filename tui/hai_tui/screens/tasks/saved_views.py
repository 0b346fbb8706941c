"""Views of the task list that are always there; people add their own."""

from __future__ import annotations

VIEWS = {
    "all": "",
    "mine": "user:me",
    "running": "status:running",
    "queued": "status:queued",
    "failed": "status:failed age:<7d",
    "starred": "starred:true",
}
"""Name (text view.NAME) and filter."""

FAULTS = "status:failed,queued"
"""What needs somebody: failures, and what waits."""
