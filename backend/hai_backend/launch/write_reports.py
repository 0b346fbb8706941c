"""Reports of the checkpoint writer to the server: small files in the root of the staging directories.

The writer has no connection to the server, and outlives it. A task has at most one report, that of its newest write.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from hai.task.staging import StagedCheckpoint
from hai_backend.launch.base import CheckpointWritten

SUFFIX = ".written"


def put(root: Path, staged: StagedCheckpoint, seconds: float) -> None:
    """Report that a checkpoint is durable. An error is ignored, because nothing depends on the report."""
    path = root / (staged.path.parent.name + SUFFIX)
    part = path.with_suffix(".part")
    with suppress(OSError):
        part.write_text(json.dumps({"run": staged.run, "seconds": seconds}))
        part.rename(path)


def take(root: Path) -> list[CheckpointWritten]:
    """Return the reports, and remove them."""
    reports = []
    for path in root.glob(f"*{SUFFIX}"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            facts = json.loads(path.read_bytes())
            reports.append(
                CheckpointWritten(int(path.stem), int(facts["run"]), float(facts["seconds"]))
            )
        path.unlink(missing_ok=True)
    return reports
