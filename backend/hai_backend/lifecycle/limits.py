"""Time limits of the life of a run, and how often it is tried again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, unless said otherwise."""

    build_within: float = 60.0  # from the placement until all ranks have attached
    return_within: float = 6.0  # after a restart of the server: agents reconnect every 5 s at least
    gather: float = 5.0  # after a rank failed, for its siblings' exit codes
    end_grace: float = 2.0  # between SIGTERM and SIGKILL
    end_slack: float = 5.0  # after that the launcher kills the ranks
    kill_again: float = 10.0
    back_off_first: float = 10.0  # doubles …
    back_off_most: float = 600.0  # … up to this
    launch_tries: int = (
        5  # launches in a row that may fail (INIT_FAILED); refusals by a node do not count
    )

    def back_off(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row (at least 1)."""
        return float(min(self.back_off_most, self.back_off_first * 2.0 ** min(failures - 1, 16)))


DEFAULTS = Limits()
