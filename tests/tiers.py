"""The tiers of tests that `make check` leaves out. `make test-TIER` runs one of them.

A tier is a pytest marker. The first row of PATHS that matches the path of a test decides; a file that needs PyTorch or
PostgreSQL marks itself. A test without a tier is a unit or contract test: it runs in one process, in milliseconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TIERS = {
    "deploy": "packages, images, the chart, set-up scripts",
    "browser": "JupyterLab: its server, kernels, and Chromium",
    "faults": "long schedules of silence, crashes and restarts; mutation tests",
    "e2e": "real servers, agents and programs",
    "terminal": "pages of the terminal app on a real server",
    "slow": "real uv, daemons of workspace sync, examples as processes",
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
    ("haienv/cli/", "slow"),
    ("haienv/layers/test_build.py", "slow"),
    ("haienv/layers/test_packing.py", "slow"),
    ("haienv/store/test_concurrency.py", "slow"),
    ("haienv/store/test_crash_recovery.py", "slow"),
    ("haienv/test_archive.py", "slow"),
    ("haienv/test_operations.py", "slow"),
    ("workspace_sync/cli/", "slow"),
    ("workspace_sync/session/test_crashes.py", "slow"),
    ("workspace_sync/session/test_daemon.py", "slow"),
    ("workspace_sync/session/test_odd_names.py", "slow"),
    ("sdk/test_examples.py", "slow"),
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
