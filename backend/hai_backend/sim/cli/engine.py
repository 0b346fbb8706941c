"""The functions that the command line calls. Tests replace them by a small fake."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.sim.replay.job import Job, Outcome, Progress


class Replay(Protocol):
    """Runs jobs on a cluster under a policy, on a virtual clock."""

    def __call__(
        self,
        jobs: Sequence[Job],
        cluster: Any,
        policy: Policy,
        *,
        label: str,
        progress: Progress,
    ) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Engine:
    """The functions that the command calls."""

    replay: Replay
    cluster: Callable[[int, int, bool], Any]  # nodes, GPUs of a node, whether tasks share nodes
    time_passes: Callable[[Mapping[str, int] | Snapshot], Mapping[str, Any]]
    parse_policy: Callable[[Mapping[str, Any], str], Policy]


def production_engine() -> Engine:
    """Return the production engine. Its modules are loaded only when they are needed."""
    from hai_backend.scheduler.policy import policy
    from hai_backend.sim import pass_timing
    from hai_backend.sim.replay import replay

    return Engine(replay.replay, replay.Cluster, pass_timing.time_passes, policy.parse)


def read_policy(path: str, engine: Engine) -> Policy:
    """Return the policy of a TOML, JSON or YAML file. Raises Invalid with all violations."""
    try:
        found = _mapping(Path(path))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise Invalid((Violation(path, f"cannot be read: {error}"),)) from error
    return engine.parse_policy(found, path)


def _mapping(path: Path) -> Mapping[str, Any]:
    """Return the content of a file. Raises ValueError (TOMLDecodeError, JSONDecodeError), OSError, YAMLError."""
    text = path.read_text("utf-8-sig")
    match path.suffix.lower():
        case ".toml":
            found = tomllib.loads(text)
        case ".json":
            found = json.loads(text)
        case ".yml" | ".yaml":
            found = yaml.safe_load(text) or {}
        case _:
            raise ValueError("its name must end in .toml, .json, .yml or .yaml")
    if not isinstance(found, Mapping):
        raise ValueError("it must hold names and values, such as `restart_seconds = 60`")
    return found
