"""Start the agent of a rank: claim the rank's directory, create its lease, and run the agent under its supervisor.

`python -m hai_backend.agent RANK_DIR`. docs/contributing/architecture.md lists the files in RANK_DIR.
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

    0: the server has recorded the exit or rejects the rank, or another agent runs the rank. 1: a bug. 2: wrong
    arguments. 3: the lease expired. 128+n: signal n killed the agent.
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
    """Run in the supervisor's child. Imports here, because only the agent needs asyncio and gRPC."""
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
    """Return one line for people. For a group of errors, it describes the first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    code = main(sys.argv)
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit without shutting down gRPC, which would occupy the node for longer.
    os._exit(code)
