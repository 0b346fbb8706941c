"""What the launcher has to do when there is news of a rank; every one of these may be done twice."""

from __future__ import annotations

from dataclasses import dataclass

from hai_backend.launch.base import LauncherEvent, RankKey

Run = tuple[int, int]  # task, number


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the server."""

    event: LauncherEvent


@dataclass(frozen=True, slots=True)
class End:
    """Delete the pod. `force`: its node is known to be dead, so nobody would confirm it."""

    key: RankKey
    uid: str = ""  # empty: nobody has seen it
    force: bool = False
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class Clean:
    """The last rank is gone: delete the owner of the run's objects."""

    run: Run


Do = Say | End | Clean
