"""Replays every trace on every cluster under every policy, after checking that all combinations can run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.sim.cli.engine import Engine, read_policy
from hai_backend.sim.cli.options import Request
from hai_backend.sim.cli.progress import Watch
from hai_backend.sim.report.metrics import metrics
from hai_backend.sim.report.results import Result
from hai_backend.sim.traces.reader import Trace, load

DEFAULT = "default"
"""The name of the policy if there is no --policy."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The contents of all input files. Policies are stored by file name."""

    traces: tuple[Trace, ...]
    policies: Mapping[str, Policy]


@dataclass(frozen=True, slots=True)
class _Case:
    trace: Trace
    policy: str
    nodes: int


def read_inputs(request: Request, engine: Engine) -> Inputs:
    """Read all files. Raises Invalid with all problems, including jobs that are too large for a cluster."""
    found: list[Violation] = []
    traces, policies = [], {}
    for path in request.traces:
        with _collected(found):
            traces.append(_load(path, request))
    for path in request.policies:
        with _collected(found):
            policies[path] = read_policy(path, engine)
    found += [problem for t in traces for n in request.nodes for problem in _too_large(t, n)]
    if found:
        raise Invalid(tuple(found), reason="BAD_INPUT")
    return Inputs(tuple(traces), policies or {DEFAULT: Policy()})


@contextmanager
def _collected(found: list[Violation]) -> Iterator[None]:
    """Collect the violations of the block, so that one invalid file does not hide problems of the next file."""
    try:
        yield
    except Invalid as error:
        found.extend(error.violations)


def _load(path: str, request: Request) -> Trace:
    return load(
        path,
        gpus_per_node=request.gpus_per_node,
        time_scale=request.time_scale,
        flat_priority=request.flat_priority,
        format=request.format,
        seed=request.seed,
    )


def _too_large(trace: Trace, nodes: int) -> list[Violation]:
    """Return a violation if the trace has jobs that a cluster of this size can never start."""
    too_large = [job for job in trace.jobs if job.nodes > nodes]
    if not too_large:
        return []
    most = max(job.nodes for job in too_large)
    first = too_large[0]
    message = (
        f"job {first.id} (submitted at {first.submit:.0f} s, {first.gpus} GPUs) needs {first.nodes}"
        f" nodes, the cluster has {nodes}; give --nodes {most} or leave out"
        f" {'this job' if len(too_large) == 1 else f'these {len(too_large)} jobs'}"
    )
    return [Violation(trace.source, message)]


def run(request: Request, given: Inputs, engine: Engine, watch: Watch) -> list[Result]:
    """Replay all cases, one after the other."""
    cases = [
        _Case(trace, policy, nodes)
        for trace in given.traces
        for policy in given.policies
        for nodes in request.nodes
    ]
    labels = _labels(cases)
    return [
        _replay(case, label, given.policies[case.policy], request, engine, watch)
        for case, label in zip(cases, labels, strict=True)
    ]


def _replay(
    case: _Case, label: str, policy: Policy, request: Request, engine: Engine, watch: Watch
) -> Result:
    cluster = engine.cluster(case.nodes, request.gpus_per_node, request.packed)
    outcome = engine.replay(case.trace.jobs, cluster, policy, label=label, progress=watch(label))
    figures = metrics(outcome, gpus_per_node=request.gpus_per_node, packed=request.packed)
    return Result(
        case.trace.source, case.policy, outcome, figures, request.gpus_per_node, request.packed
    )


def _labels(cases: Sequence[_Case]) -> list[str]:
    """Return a label for each case, made of the parts that differ. A single case is named by its policy."""
    full = [(case.trace.source, case.policy, f"{case.nodes} nodes") for case in cases]
    short = [(_stem(trace), _stem(policy), nodes) for trace, policy, nodes in full]
    parts = short if len(set(short)) == len(cases) else full  # a/p.toml and b/p.toml
    differ = [len(set(column)) > 1 for column in zip(*parts, strict=True)]
    if not any(differ):
        return [short[0][1]]
    return [", ".join(itertools.compress(part, differ)) for part in parts]


def _stem(path: str) -> str:
    name = Path(path).name
    return name.split(".")[0] or name
