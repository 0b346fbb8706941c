"""Which tests `make check` leaves out, and which make target runs them.

A tier is a marker. The first row that matches a test's path decides. A file may also mark itself, as those do that need
PyTorch or PostgreSQL. A test without a tier is a unit or contract test: it runs in one process, in milliseconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TIERS = {
    "deploy": "packages, images, the chart, set-up scripts",
    "browser": "JupyterLab: its server, kernels, and Chromium",
    "faults": "long schedules of silence, crashes and restarts; small errors put into the code",
    "e2e": "real servers, agents and programs",
    "terminal": "pages of the terminal app on a real server",
    "slow": "real uv, daemons of workspace sync",
    "torch": "PyTorch, Lightning and Transformers",
    "postgres": "what only PostgreSQL does",
}

PATHS = [
    ("backend/deploy/", "deploy"),
    ("test_packaging.py", "deploy"),
    ("test_scripts.py", "deploy"),
    ("test_without_extras.py", "deploy"),
    ("cli/commands/test_cluster.py", "deploy"),
    ("jupyter/", "browser"),
    ("silence/", "faults"),
    ("mutation/", "faults"),
    ("e2e/silence/", "faults"),
    ("e2e/operations/test_fault_points.py", "faults"),
    ("e2e/operations/test_replicas.py", "faults"),
    ("backend/server/election/", "faults"),
    ("backend/workspaces/test_random_crashes.py", "faults"),
    ("backend/workspaces/test_crashes.py", "faults"),
    ("backend/workspaces/test_hostile.py", "faults"),
    ("backend/launch/kubernetes/test_random_faults", "faults"),
    ("e2e/", "e2e"),
    ("haienv/cli/test_commands.py", "slow"),
    ("haienv/layers/test_build.py", "slow"),
    ("haienv/store/test_concurrency.py", "slow"),
    ("haienv/store/test_crash_recovery.py", "slow"),
    ("workspace_sync/cli/", "slow"),
    ("tui/pages/", "terminal"),
]
"""Prefixes of paths below tests/."""

_ROOT = Path(__file__).parent


def tier_of(path: Path) -> str | None:
    """Return the tier that PATHS gives to a file, or None for unit and contract tests."""
    relative = path.relative_to(_ROOT).as_posix()
    return next((tier for prefix, tier in PATHS if relative.startswith(prefix)), None)


def mark(item: pytest.Item) -> None:
    """Add the marker of its tier to a test."""
    marked = any(item.get_closest_marker(tier) for tier in TIERS)
    if not marked and (tier := tier_of(item.path)):
        item.add_marker(tier)
