"""Parses and validates the options of the command. All problems are reported at once."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.sim.traces.reader import FORMATS
from hai_backend.sim.traces.rows import to_float

SYNTHETIC: Mapping[str, int] = {
    "nodes": 10_000,
    "waiting": 100_000,
    "running": 5_000,
    "users": 500,
    "groups": 20,
}
"""The names that --synthetic accepts, with their defaults."""

_MAY_BE_0 = ("waiting", "running")


def read_problem(path: Path) -> str:
    """Say why a file cannot be read; return an empty text if it can."""
    if path.is_dir():
        return "is a directory; name a file"
    if not path.exists():
        return "no such file"
    return "" if os.access(path, os.R_OK) else "you may not read it"


def write_problem(path: Path) -> str:
    """Say why a file cannot be written; return an empty text if it can.

    This is checked before a replay, which takes minutes.
    """
    if path.is_dir():
        return "is a directory; name a file"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}; make it first"
    writable = os.access(path if path.exists() else path.parent, os.W_OK)
    return "" if writable else "you may not write there"


def parse_positive(text: str) -> int:
    """Parse an integer from 1. Raises ValueError."""
    return _number(text, at_least=1)


def parse_count(text: str) -> int:
    """Parse an integer from 0. Raises ValueError."""
    return _number(text, at_least=0)


def _number(text: str, *, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise ValueError(f"{text!r} is not a whole number from {at_least}")
    return value


def parse_factor(text: str) -> float:
    """Parse a number above 0. Raises ValueError."""
    value = to_float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(
            f"{text!r} is not a number above 0; 5 lets the jobs come five times as fast"
        )
    return value


def parse_format(text: str) -> str:
    """Parse a format of traces. Raises ValueError."""
    if text not in FORMATS:
        raise ValueError(f"no format {text!r}; there are {', '.join(FORMATS)}")
    return text


def parse_synthetic_or_snapshot(text: str) -> Mapping[str, int] | Path:
    """Parse the numbers of --synthetic, or the file name of a snapshot. Raises ValueError with all problems."""
    if not text.endswith(".json"):
        return parse_synthetic(text)
    if problem := read_problem(Path(text)):
        raise ValueError(f"{text}: {problem}")
    return Path(text)


def parse_synthetic(text: str) -> Mapping[str, int]:
    """Parse the numbers of --synthetic; omitted numbers have their defaults. Raises ValueError with all problems."""
    found, problems = dict(SYNTHETIC), []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        try:
            found[_synthetic_name(name)] = _number(value, at_least=0 if name in _MAY_BE_0 else 1)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return found


def _synthetic_name(name: str) -> str:
    if name not in SYNTHETIC:
        suggestions = difflib.get_close_matches(name, SYNTHETIC, n=1)
        suggestion = f"did you mean {suggestions[0]}? " if suggestions else ""
        raise ValueError(f"no such number; {suggestion}there are {', '.join(SYNTHETIC)}")
    return name


T = TypeVar("T")

STDOUT = "-"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The options as they were typed. Options that were not given are None or empty."""

    traces: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    gpus_per_node: str | None = None
    time_scale: str | None = None
    format: str | None = None
    seed: str | None = None
    synthetic: str | None = None
    json: str | None = None
    report: str | None = None
    packed: bool = False
    flat_priority: bool = False
    verify: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What to do: time passes if `synthetic` is set, verify a log if `verify` is set, else replay traces."""

    traces: tuple[str, ...]
    nodes: tuple[int, ...]
    policies: tuple[str, ...]
    gpus_per_node: int
    time_scale: float
    format: str | None
    seed: int
    packed: bool
    flat_priority: bool
    synthetic: Mapping[str, int] | Path | None
    json: str | None
    report: str | None
    verify: bool


@dataclass(slots=True)
class _Check:
    """Converts options, and collects the violations."""

    violations: list[Violation] = field(default_factory=list)

    def add(self, option: str, message: str) -> None:
        self.violations.append(Violation(option, message))

    def value(self, option: str, text: str | None, convert: Callable[[str], T], default: T) -> T:
        if text is None:
            return default
        try:
            return convert(text)
        except ValueError as error:
            self.add(option, str(error))
            return default


def parse(arguments: CommandLine) -> Request:
    """Convert and check all options. Raises Invalid with all violations."""
    check = _Check()
    _check_purpose(check, arguments)
    _check_files(check, arguments)
    request = Request(
        traces=tuple(dict.fromkeys(arguments.traces)),
        nodes=tuple(
            dict.fromkeys(
                check.value("--nodes", text, parse_positive, 1) for text in arguments.nodes
            )
        ),
        policies=tuple(dict.fromkeys(arguments.policies)),
        gpus_per_node=check.value("--gpus-per-node", arguments.gpus_per_node, parse_positive, 8),
        time_scale=check.value("--time-scale", arguments.time_scale, parse_factor, 1.0),
        format=check.value("--format", arguments.format, parse_format, None),
        seed=check.value("--seed", arguments.seed, parse_count, 1),
        packed=arguments.packed,
        flat_priority=arguments.flat_priority,
        synthetic=check.value(
            "--synthetic", arguments.synthetic, parse_synthetic_or_snapshot, None
        ),
        json=arguments.json,
        report=arguments.report,
        verify=arguments.verify,
    )
    if check.violations:
        raise Invalid(tuple(check.violations), reason="BAD_OPTIONS")
    return request


def _check_purpose(check: _Check, arguments: CommandLine) -> None:
    """Check that the options belong to one purpose: a replay, --verify or --synthetic."""
    if arguments.synthetic is not None:
        _check_alone(check, "--synthetic", {"TRACE": arguments.traces, **_replay_only(arguments)})
        return
    if not arguments.traces:
        check.add("TRACE", "missing; name a trace, or give --synthetic")
    if arguments.verify:
        _check_alone(check, "--verify", _replay_only(arguments))
    elif not arguments.nodes:
        check.add("--nodes", "missing; say how many nodes the cluster shall have")


def _check_alone(check: _Check, purpose: str, others: Mapping[str, Any]) -> None:
    for option, given in others.items():
        if given:
            check.add(option, f"has no meaning with {purpose}; leave one of them out")


def _replay_only(arguments: CommandLine) -> Mapping[str, Any]:
    return {
        "--nodes": arguments.nodes,
        "--policy": arguments.policies,
        "--gpus-per-node": arguments.gpus_per_node,
        "--time-scale": arguments.time_scale,
        "--format": arguments.format,
        "--seed": arguments.seed,
        "--report": arguments.report,
        "--packed": arguments.packed,
        "--flat-priority": arguments.flat_priority,
    }


def _check_files(check: _Check, arguments: CommandLine) -> None:
    for option, paths in (("TRACE", arguments.traces), ("--policy", arguments.policies)):
        for path in dict.fromkeys(paths):
            if problem := read_problem(Path(path)):
                check.add(option, f"{path}: {problem}")
    for option, out in (("--json", arguments.json), ("--report", arguments.report)):
        if out and out != STDOUT and (problem := write_problem(Path(out))):
            check.add(option, f"{out}: {problem}")
    if arguments.report == STDOUT:
        check.add("--report", "is written to a file; name one, such as report.html")
    elif arguments.report and find_spec("matplotlib") is None:
        check.add("--report", "needs matplotlib: pip install 'hai-platform[backend]'")
