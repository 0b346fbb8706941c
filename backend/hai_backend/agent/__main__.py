"""Starts the agent of a rank: `python -m hai_backend.agent RANK_DIR`.

It locks the rank's directory, creates the lease, and runs the agent under its supervisor.
docs/contributing/architecture.md lists the files in RANK_DIR.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hai.redaction import redact
from hai_backend.agent.lease import Lease
from hai_backend.agent.rank_dir import RankDir
from hai_backend.agent.supervisor import EXIT_BUG, supervise


def main(argv: Sequence[str]) -> int:
    """Run the agent and return its exit code.

    The codes are 0 if the server has recorded the exit or rejects the rank, or if another agent runs the rank; 1 for a
    bug; 2 for wrong arguments; 3 if the lease expired; and 128+n if signal n killed the agent.
    """
    if len(argv) != 2:
        print("usage: python -m hai_backend.agent RANK_DIR", file=sys.stderr)
        return 2
    directory = RankDir(Path(argv[1]).resolve())
    if not directory.claim():
        return 0  # a server that paused while it was the leader has started a second agent
    lease = Lease(directory.timing().lease)
    return supervise(directory, lease, lambda: _run_agent(directory, lease))


def _run_agent(directory: RankDir, lease: Lease) -> int:
    """Run the agent in the supervisor's child. It imports modules here that the supervisor does not need."""
    import asyncio

    from hai_backend.agent import rank

    try:
        return asyncio.run(rank.run(directory, lease))
    except BaseException as error:  # whatever the error is, the program must not keep running
        directory.report_failure(
            f"the agent failed, and its program was ended: {format_error(error)}"
        )
        import traceback

        trace = redact("".join(traceback.format_exception(error)))
        print(trace, file=sys.stderr, end="")  # last, because it fails on a full disk
        return EXIT_BUG


def format_error(error: BaseException) -> str:
    """Return a line that describes an error. For a group of errors, describe the first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    code = main(sys.argv)
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit without shutting down gRPC, which would occupy the node for longer.
    os._exit(code)
