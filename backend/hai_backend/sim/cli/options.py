"""What each option of the command takes: a value, or a sentence about what is wrong with the text."""

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
from hai_backend.sim.traces.rows import as_float

SYNTHETIC: Mapping[str, int] = {
    "nodes": 10_000,
    "waiting": 100_000,
    "running": 5_000,
    "users": 500,
    "groups": 20,
}
"""What --synthetic takes, and what holds for a name left out."""

_MAY_BE_0 = ("waiting", "running")


def unreadable(path: Path) -> str:
    """Why a file cannot be read; empty when it can."""
    if path.is_dir():
        return "is a directory; name a file"
    if not path.exists():
        return "no such file"
    return "" if os.access(path, os.R_OK) else "you may not read it"


def unwritable(path: Path) -> str:
    """Why a file cannot be written; better said before a replay of minutes than after it."""
    if path.is_dir():
        return "is a directory; name a file"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}; make it first"
    writable = os.access(path if path.exists() else path.parent, os.W_OK)
    return "" if writable else "you may not write there"


def positive(text: str) -> int:
    """A whole number from 1. Raises ValueError."""
    return _number(text, at_least=1)


def number(text: str) -> int:
    """A whole number from 0. Raises ValueError."""
    return _number(text, at_least=0)


def _number(text: str, *, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise ValueError(f"{text!r} is not a whole number from {at_least}")
    return value


def factor(text: str) -> float:
    """A number above 0. Raises ValueError."""
    value = as_float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(
            f"{text!r} is not a number above 0; 5 lets the jobs come five times as fast"
        )
    return value


def format_name(text: str) -> str:
    """A format of traces. Raises ValueError."""
    if text not in FORMATS:
        raise ValueError(f"no format {text!r}; there are {', '.join(FORMATS)}")
    return text


def passes(text: str) -> Mapping[str, int] | Path:
    """The numbers of --synthetic, or the file of a snapshot. Raises ValueError with all that is wrong."""
    if not text.endswith(".json"):
        return synthetic(text)
    if problem := unreadable(Path(text)):
        raise ValueError(f"{text}: {problem}")
    return Path(text)


def synthetic(text: str) -> Mapping[str, int]:
    """The numbers of --synthetic, the ones left out as well. Raises ValueError with all that is wrong."""
    found, wrong = dict(SYNTHETIC), []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        try:
            found[_known(name)] = _number(value, at_least=0 if name in _MAY_BE_0 else 1)
        except ValueError as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return found


def _known(name: str) -> str:
    if name not in SYNTHETIC:
        near = difflib.get_close_matches(name, SYNTHETIC, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"no such number; {meant}there are {', '.join(SYNTHETIC)}")
    return name


T = TypeVar("T")

STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Words:
    """The options as they were typed; None or empty: not given."""

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
    """What to do; a replay, unless `synthetic` or `verify` say otherwise."""

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
    """Converts, and keeps what could not be converted."""

    found: list[Violation] = field(default_factory=list)

    def wrong(self, option: str, message: str) -> None:
        self.found.append(Violation(option, message))

    def value(self, option: str, text: str | None, convert: Callable[[str], T], default: T) -> T:
        if text is None:
            return default
        try:
            return convert(text)
        except ValueError as error:
            self.wrong(option, str(error))
            return default


def parse(words: Words) -> Request:
    """Raises Invalid with every violation."""
    check = _Check()
    _check_purpose(check, words)
    _check_files(check, words)
    request = Request(
        traces=tuple(dict.fromkeys(words.traces)),
        nodes=tuple(
            dict.fromkeys(check.value("--nodes", text, positive, 1) for text in words.nodes)
        ),
        policies=tuple(dict.fromkeys(words.policies)),
        gpus_per_node=check.value("--gpus-per-node", words.gpus_per_node, positive, 8),
        time_scale=check.value("--time-scale", words.time_scale, factor, 1.0),
        format=check.value("--format", words.format, format_name, None),
        seed=check.value("--seed", words.seed, number, 1),
        packed=words.packed,
        flat_priority=words.flat_priority,
        synthetic=check.value("--synthetic", words.synthetic, passes, None),
        json=words.json,
        report=words.report,
        verify=words.verify,
    )
    if check.found:
        raise Invalid(tuple(check.found), reason="BAD_OPTIONS")
    return request


def _check_purpose(check: _Check, words: Words) -> None:
    """Either a replay, which needs nodes, or --verify, or --synthetic: these take little else but --json."""
    if words.synthetic is not None:
        _check_alone(check, "--synthetic", {"TRACE": words.traces, **_replay_only(words)})
        return
    if not words.traces:
        check.wrong("TRACE", "missing; name a trace, or give --synthetic")
    if words.verify:
        _check_alone(check, "--verify", _replay_only(words))
    elif not words.nodes:
        check.wrong("--nodes", "missing; say how many nodes the cluster shall have")


def _check_alone(check: _Check, purpose: str, others: Mapping[str, Any]) -> None:
    for option, given in others.items():
        if given:
            check.wrong(option, f"has no meaning with {purpose}; leave one of them out")


def _replay_only(words: Words) -> Mapping[str, Any]:
    return {
        "--nodes": words.nodes,
        "--policy": words.policies,
        "--gpus-per-node": words.gpus_per_node,
        "--time-scale": words.time_scale,
        "--format": words.format,
        "--seed": words.seed,
        "--report": words.report,
        "--packed": words.packed,
        "--flat-priority": words.flat_priority,
    }


def _check_files(check: _Check, words: Words) -> None:
    for option, paths in (("TRACE", words.traces), ("--policy", words.policies)):
        for path in dict.fromkeys(paths):
            if problem := unreadable(Path(path)):
                check.wrong(option, f"{path}: {problem}")
    for option, out in (("--json", words.json), ("--report", words.report)):
        if out and out != STDOUT and (problem := unwritable(Path(out))):
            check.wrong(option, f"{out}: {problem}")
    if words.report == STDOUT:
        check.wrong("--report", "is written to a file; name one, such as report.html")
    elif words.report and find_spec("matplotlib") is None:
        check.wrong("--report", "needs matplotlib: pip install 'hai-platform[backend]'")
