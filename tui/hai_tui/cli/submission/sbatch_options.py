"""Translates `#SBATCH` options into a task. Some have an equivalent, some hold for every task, some have no meaning.

A task differs from a job of Slurm in three ways, which the notes explain: it gets whole nodes unless their group is
shared, the script starts on every node and not only on the first, and the platform stores the output.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import click

from hai.task.levels import PRIORITIES
from hai_tui.cli.submission.dependencies import Dependency
from hai_tui.cli.submission.sbatch_script import Directive
from hai_tui.cli.submission.sweep import Array, ArrayType

if TYPE_CHECKING:
    from hai.v1.task_spec_pb2 import TaskSpec

_LOG = "the platform stores the output of every rank: `hai logs TASK`"
_MAIL = "`hai webhook set NAME URL`, once, notifies you about all your tasks"
_PROCESSES = (
    "the script starts once on each node and must start further processes itself, as torchrun does"
)
_HINTS = {
    "output": _LOG,
    "error": _LOG,
    "open-mode": _LOG,
    "mail-type": _MAIL,
    "mail-user": _MAIL,
    "account": "quotas and shares belong to users and their groups; see `hai whoami`",
    "begin": "`hai suspend TASK --delay 2h`, as soon as it is submitted",
    "hold": "`hai suspend TASK --hold`, as soon as it is submitted",
    "wait": "-f waits for the end",
    "constraint": "-g GROUP#ZONE",
    "exclude": "`hai node cordon` is for operators; a task cannot avoid a node",
    "reservation": "an operator gives a group of nodes to some users",
    "licenses": "no licenses are counted",
    "no-requeue": "every task may be suspended and starts again; `max_retries` counts only failures",
    "ntasks-per-core": _PROCESSES,
    "ntasks-per-socket": _PROCESSES,
    "ntasks-per-gpu": _PROCESSES,
    "nice": "`hai rank TASK --first` orders your own tasks",
    "tmp": "each rank has a directory of its own",
    "test-only": "--dry-run",
    "clusters": "`hai --profile NAME` chooses a cluster",
}
"""Options that have no meaning for a task, and what to do instead."""

_ALWAYS_SO = frozenset(
    {
        "exclusive",
        "export-file",
        "get-user-env",
        "no-kill",
        "parsable",
        "quiet",
        "requeue",
        "verbose",
    }
)
"""Options that hold for every task, or concern only sbatch."""

_DEPENDENCIES = {"afterok": "succeeded", "afternotok": "failed", "afterany": "ended"}
_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?P<of_day>\d+(?::\d+){0,2})|(?P<clock>\d+(?::\d+){0,2}))", re.ASCII
)
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_MEGABYTES = {"K": 1 / 1024, "M": 1.0, "": 1.0, "G": 1024.0, "T": 1024.0**2}
_SIGNAL = re.compile(
    r"(?:[RB]+:)?(?:SIG)?(?P<name>[A-Z0-9]+)(?:@(?P<seconds>\d+))?", re.ASCII | re.IGNORECASE
)
_SIGNALS = {"TERM": "SIGTERM", "15": "SIGTERM", "USR1": "SIGUSR1", "10": "SIGUSR1"}
_MAX_SAVE_SECONDS = 3600
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,63}", re.ASCII)


@dataclass(slots=True)
class Job:
    """The options of a script in terms of a task."""

    directory: str
    equivalent_options: list[str] = field(
        default_factory=list
    )  # options of hai with the same effect
    notes: list[str] = field(default_factory=list)  # one line for each ignored option
    name: str = ""
    group: str = ""
    priority: int | None = None
    nodes: int = 0
    workspace: str = ""
    after: list[Dependency] = field(default_factory=list)
    array: Array | None = None
    variables: dict[str, str] = field(default_factory=dict)
    assignments: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # ntasks, gpus …; memory in MB

    def add_equivalent(self, option: str) -> None:
        """Add an option of hai that has the same effect."""
        self.equivalent_options.append(option)

    def assign(self, assignment: str) -> None:
        """Set a field of the task."""
        self.assignments.append(assignment)
        self.add_equivalent(f"--options {shlex.quote(assignment)}")


def read_job(directives: Sequence[Directive], file: str, directory: str) -> Job:
    """Translate the options. Raise click.UsageError with all that are invalid."""
    job, problems = Job(directory), []
    for directive in directives:
        try:
            _read_directive(job, directive)
        except (ValueError, click.UsageError) as error:
            problems.append(f"line {directive.line}: {directive}: {error}")
    if problems:
        raise click.UsageError(f"{file}: " + "; ".join(problems))
    return job


def _read_directive(job: Job, directive: Directive) -> None:
    if directive.name in _READERS:
        _READERS[directive.name](job, directive.value)
    elif directive.name not in _ALWAYS_SO:
        hint = _HINTS.get(directive.name)
        explanation = f"here: {hint}" if hint else "it has no meaning here"
        job.notes.append(f"{directive} is ignored; {explanation}")


def _read_name(job: Job, value: str) -> None:
    job.name = re.sub(r"[()]", "_", value)
    job.add_equivalent(f"--name {shlex.quote(job.name)}")


def _read_nodes(job: Job, value: str) -> None:
    least, _, most = value.partition("-")
    job.nodes = _parse_positive(least)
    if most and _parse_positive(most) != job.nodes:
        job.notes.append(
            f"--nodes={value}: uses {job.nodes}; the number of nodes of a task is fixed"
        )
    job.add_equivalent(f"-n {job.nodes}")


def _count_reader(name: str) -> Callable[[Job, str], None]:
    def read(job: Job, value: str) -> None:
        job.counts[name] = _parse_positive(value)

    return read


def _parse_positive(value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value, re.ASCII) or not int(value):
        raise ValueError("must be a number from 1")
    return int(value)


def _read_time(job: Job, value: str) -> None:
    if value.upper() in ("UNLIMITED", "INFINITE", "0"):
        return
    seconds = parse_time(value)
    if seconds:
        job.assign(f"time_limit={seconds}")


def parse_time(value: str) -> int:
    """Parse MINUTES[:SECONDS], HOURS:MINUTES:SECONDS, or DAYS-HOURS[:MINUTES[:SECONDS]]."""
    match = _TIME.fullmatch(value)
    if match is None:
        raise ValueError("must be MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS")
    if match["days"]:
        hours, minutes, seconds = [*map(int, match["of_day"].split(":")), 0, 0][:3]
        return ((int(match["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    parts = list(map(int, match["clock"].split(":")))
    if len(parts) < 3:
        parts = [0, *parts, 0][:3]
    return (parts[0] * 60 + parts[1]) * 60 + parts[2]


def _read_array(job: Job, value: str) -> None:
    job.array = ArrayType().convert(value, None, None)
    job.add_equivalent(f"--array {value}")


def _read_dependency(job: Job, value: str) -> None:
    """Refuse a dependency that has no equivalent. Without it, the task would start too early."""
    if "?" in value:
        raise ValueError(
            "a task waits for all of its dependencies, not for any; use --after behind --"
        )
    for part in filter(None, value.split(",")):
        kind, *tasks = part.split(":")
        if kind == "singleton":
            job.notes.append(
                "--dependency=singleton always holds: a name is taken until its task has ended"
            )
        elif kind not in _DEPENDENCIES or not tasks:
            raise ValueError(
                f"{kind} has no equivalent; use --after TASK, TASK:failed or TASK:ended behind --"
            )
        for task in tasks if kind in _DEPENDENCIES else ():
            job.after.append(Dependency(task, _DEPENDENCIES[kind]))
            job.add_equivalent(f"--after {task}:{_DEPENDENCIES[kind]}")


def _read_gres(job: Job, value: str) -> None:
    for part in value.split(","):
        kind, *more = part.removeprefix("gres/").split(":")
        if kind == "gpu":
            job.counts["gpus-per-node"] = (
                _parse_positive(more[-1]) if more and more[-1].isdigit() else 1
            )
        else:
            job.notes.append(f"--gres={part} is ignored; `hai groups` lists what nodes have")


def _gpu_reader(name: str) -> Callable[[Job, str], None]:
    def read(job: Job, value: str) -> None:
        job.counts[name] = _parse_positive(value.rpartition(":")[2])

    return read


def _memory_reader(name: str) -> Callable[[Job, str], None]:
    def read(job: Job, value: str) -> None:
        match = _MEMORY.fullmatch(value)
        if match is None:
            raise ValueError("must be a number with K, M, G or T")
        job.counts[name] = math.ceil(int(match[1]) * _MEGABYTES[match[2].upper()])

    return read


def _read_partition(job: Job, value: str) -> None:
    job.group, *others = value.split(",")
    if others:
        job.notes.append(
            f"--partition={value}: uses {job.group}; a task belongs to one group of nodes"
        )
    job.add_equivalent(f"-g {shlex.quote(job.group)}")


def _read_qos(job: Job, value: str) -> None:
    level = value.upper().replace("-", "_")
    if level not in PRIORITIES:
        job.notes.append(
            f"--qos={value} is ignored; here: -p LEVEL, one of {', '.join(PRIORITIES)}"
        )
        return
    job.priority = PRIORITIES[level]
    job.add_equivalent(f"-p {level}")


def _read_export(job: Job, value: str) -> None:
    for part in filter(None, value.split(",")):
        name, equals, assigned = part.partition("=")
        if name == "ALL":
            job.notes.append(
                "--export=ALL is ignored; use -e NAME to pass a variable of this shell"
            )
        elif equals or name in os.environ:
            job.variables[name] = assigned if equals else os.environ[name]
            job.add_equivalent(f"-e {shlex.quote(part)}")


def _read_signal(job: Job, value: str) -> None:
    match = _SIGNAL.fullmatch(value)
    if match is None:
        raise ValueError("must be SIGNAL or SIGNAL@SECONDS")
    signal = _SIGNALS.get(match["name"].upper())
    if signal is None:
        job.notes.append(
            f"--signal={value} is ignored; here: --options suspend_signal=SIGUSR1, or SIGTERM"
        )
        return
    job.assign(f"suspend_signal={signal}")
    if seconds := int(match["seconds"] or 0):
        job.assign(f"save_within={min(seconds, _MAX_SAVE_SECONDS)}")


def _read_chdir(job: Job, value: str) -> None:
    job.workspace = os.path.abspath(os.path.join(job.directory, os.path.expanduser(value)))
    job.add_equivalent(f"--options {shlex.quote(f'spec.workspace={job.workspace}')}")


def _read_nodelist(job: Job, value: str) -> None:
    if "[" in value:
        raise ValueError("must be names with commas between them; write each name")
    job.assign(f"assigned_nodes=[{', '.join(value.split(','))}]")


def _read_comment(job: Job, value: str) -> None:
    if _TAG.fullmatch(value):
        job.assign(f"tags=[{value}]")
    else:
        job.notes.append(f"--comment={shlex.quote(value)} is ignored; here: --tag LABEL, a word")


_READERS: Mapping[str, Callable[[Job, str], None]] = {
    "job-name": _read_name,
    "nodes": _read_nodes,
    "ntasks": _count_reader("ntasks"),
    "ntasks-per-node": _count_reader("ntasks-per-node"),
    "cpus-per-task": _count_reader("cpus-per-task"),
    "cpus-per-gpu": _count_reader("cpus-per-gpu"),
    "time": _read_time,
    "array": _read_array,
    "dependency": _read_dependency,
    "gres": _read_gres,
    "gpus": _gpu_reader("gpus"),
    "gpus-per-node": _gpu_reader("gpus-per-node"),
    "gpus-per-task": _gpu_reader("gpus-per-task"),
    "mem": _memory_reader("mem"),
    "mem-per-cpu": _memory_reader("mem-per-cpu"),
    "mem-per-gpu": _memory_reader("mem-per-gpu"),
    "partition": _read_partition,
    "qos": _read_qos,
    "export": _read_export,
    "signal": _read_signal,
    "chdir": _read_chdir,
    "nodelist": _read_nodelist,
    "comment": _read_comment,
}


class NodeParts(NamedTuple):
    """The resources of a rank on a shared node; 0 if none was requested."""

    gpu: int
    cpu: int
    memory: int  # GB


def process_notes(job: Job) -> list[str]:
    """Return notes about options that ask Slurm for several processes on a node."""
    per_node = job.counts.get("ntasks-per-node", 0)
    has_several = per_node > 1 or job.counts.get("ntasks", 1) > node_count(job) * max(per_node, 1)
    names = [name for name in ("ntasks", "ntasks-per-node") if name in job.counts]
    return [f"--{name}={job.counts[name]}: {_PROCESSES}" for name in names] if has_several else []


def node_count(job: Job) -> int:
    """Return --nodes, else as many nodes as --ntasks and --ntasks-per-node need."""
    tasks, per_node = job.counts.get("ntasks", 1), job.counts.get("ntasks-per-node")
    return job.nodes or (math.ceil(tasks / per_node) if per_node else 1)


def node_parts(job: Job, nodes: int) -> NodeParts:
    """Return the resources of each node, computed as Slurm does."""
    counts = job.counts
    tasks = counts.get("ntasks-per-node") or math.ceil(counts.get("ntasks", nodes) / nodes)
    gpu = counts.get("gpus-per-node") or counts.get("gpus-per-task", 0) * tasks
    gpu = gpu or math.ceil(counts.get("gpus", 0) / nodes)
    cpu = counts.get("cpus-per-task", 0) * tasks or counts.get("cpus-per-gpu", 0) * gpu
    memory = counts.get("mem") or counts.get("mem-per-cpu", 0) * max(cpu, tasks)
    memory = memory or counts.get("mem-per-gpu", 0) * gpu
    return NodeParts(gpu, cpu, math.ceil(memory / 1024))


def fill_spec(spec: TaskSpec, job: Job) -> None:
    """Write the options of the script into a task. The options of the command line follow and win."""
    from hai.client.taskfile.spec import apply_option

    spec.name = job.name or spec.name
    spec.resource.node_count = node_count(job)
    spec.resource.group = job.group
    if job.priority is not None:
        spec.priority = job.priority
    spec.spec.workspace = job.workspace or spec.spec.workspace
    spec.spec.environments.update({**_slurm_variables(job), **job.variables})
    for assignment in job.assignments:
        apply_option(spec, f"options.{assignment}")


def _slurm_variables(job: Job) -> dict[str, str]:
    """Return the variables that scripts compute with. The rank sets the others itself; see
    sbatch_script.wrap_script.
    """
    names = ("cpus-per-task", "ntasks-per-node")
    return {
        f"SLURM_{name.upper().replace('-', '_')}": str(job.counts[name])
        for name in names
        if name in job.counts
    }
