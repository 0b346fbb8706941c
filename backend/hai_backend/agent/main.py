"""Starts a rank: claims its directory, makes its lease, and runs the agent under its supervisor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hai.redaction import redact
from hai_backend.agent.lease import Lease
from hai_backend.agent.rank_dir import RankDir
from hai_backend.agent.supervisor import EXIT_BUG, supervise


def main(argv: Sequence[str]) -> int:
    """Exit codes: 0 the server knows how it ended or rejects the rank, or another agent has it; 1 a bug, 2 wrong
    call, 3 the lease expired, 128+n the agent was killed by signal n."""
    if len(argv) != 2:
        print("usage: python -m hai_backend.agent RANK_DIR", file=sys.stderr)
        return 2
    directory = RankDir(Path(argv[1]).resolve())
    if not directory.claim():
        return 0  # a server that was paused while it led has started a second one
    lease = Lease(directory.timing().lease)
    return supervise(directory, lease, lambda: _run_agent(directory, lease))


def _run_agent(directory: RankDir, lease: Lease) -> int:
    """In the supervisor's child: only the agent needs asyncio and gRPC."""
    import asyncio

    from hai_backend.agent import rank

    try:
        return asyncio.run(rank.run(directory, lease))
    except (
        BaseException
    ) as error:  # an end that nobody expected, whichever: the program must not run on
        directory.report_failure(f"the agent failed, and its program was ended: {reason(error)}")
        import traceback

        trace = redact("".join(traceback.format_exception(error)))
        print(trace, file=sys.stderr, end="")  # last: it fails on a full disk
        return EXIT_BUG


def reason(error: BaseException) -> str:
    """One line for people; of a group of errors, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
