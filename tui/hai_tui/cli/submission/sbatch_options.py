"""What `#SBATCH` lines mean for a task: an option of hai, something that is so anyway, or nothing.

A task differs from a job of Slurm in three ways, which the notes tell: nodes are given whole unless their group is
shared, the script starts on every node and not on the first alone, and the platform keeps the output.
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

_LOG = "the platform keeps what every rank prints: `hai logs TASK`"
_MAIL = "`hai webhook set NAME URL`, once, tells of all your tasks"
_PROCESSES = (
    "the script starts once on each node; what it starts there, it starts itself, as with torchrun"
)
_SETTLED = {
    "output": _LOG,
    "error": _LOG,
    "open-mode": _LOG,
    "mail-type": _MAIL,
    "mail-user": _MAIL,
    "account": "quotas and shares belong to users and their groups: `hai whoami`",
    "begin": "`hai suspend TASK --delay 2h`, as soon as it is submitted",
    "hold": "`hai suspend TASK --hold`, as soon as it is submitted",
    "wait": "-f waits for the end",
    "constraint": "-g GROUP#ZONE",
    "exclude": "`hai node cordon` is for operators; a task cannot avoid a node",
    "reservation": "an operator gives a group of nodes to some users",
    "licenses": "no licenses are counted",
    "no-requeue": "every task may be suspended, and is started again; `max_retries` is for failures alone",
    "ntasks-per-core": _PROCESSES,
    "ntasks-per-socket": _PROCESSES,
    "ntasks-per-gpu": _PROCESSES,
    "nice": "`hai rank TASK --first` orders your own tasks",
    "tmp": "each rank has a directory of its own",
    "test-only": "--dry-run",
    "clusters": "`hai --profile NAME` chooses a cluster",
}
"""What has no meaning in a task, and what does the same."""

_AS_HERE = frozenset(
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
"""What is so anyway, or concerns sbatch alone."""

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
_SAVE_SECONDS = 3600
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,63}", re.ASCII)


@dataclass(slots=True)
class Job:
    """What the lines say, in terms of a task."""

    directory: str
    equivalent_options: list[str] = field(default_factory=list)  # the same as options of hai
    notes: list[str] = field(default_factory=list)  # what has no meaning here, a line each
    name: str = ""
    group: str = ""
    priority: int | None = None
    nodes: int = 0
    workspace: str = ""
    after: list[Dependency] = field(default_factory=list)
    array: Array | None = None
    variables: dict[str, str] = field(default_factory=dict)
    assignments: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(
        default_factory=dict
    )  # ntasks, gpus, cpus-per-task …; memory in MB

    def say(self, option: str) -> None:
        """Note an option of hai that says the same."""
        self.equivalent_options.append(option)

    def assign(self, assignment: str) -> None:
        """Set a field of the task."""
        self.assignments.append(assignment)
        self.say(f"--options {shlex.quote(assignment)}")


def read_job(found: Sequence[Directive], file: str, directory: str) -> Job:
    """What the options mean. Raises click.UsageError with all that cannot be read."""
    job, wrong = Job(directory), []
    for each in found:
        try:
            _read(job, each)
        except (ValueError, click.UsageError) as error:
            wrong.append(f"line {each.line}: {each}: {error}")
    if wrong:
        raise click.UsageError(f"{file}: " + "; ".join(wrong))
    return job


def _read(job: Job, found: Directive) -> None:
    if found.name in _READERS:
        _READERS[found.name](job, found.value)
    elif found.name not in _AS_HERE:
        hint = _SETTLED.get(found.name)
        explanation = f"here: {hint}" if hint else "it has no meaning here"
        job.notes.append(f"{found} is left out; {explanation}")


def _name(job: Job, value: str) -> None:
    job.name = re.sub(r"[()]", "_", value)
    job.say(f"--name {shlex.quote(job.name)}")


def _nodes(job: Job, value: str) -> None:
    least, _, most = value.partition("-")
    job.nodes = _positive(least)
    if most and _positive(most) != job.nodes:
        job.notes.append(
            f"--nodes={value}: takes {job.nodes}; the number of nodes of a task is fixed"
        )
    job.say(f"-n {job.nodes}")


def _count(name: str) -> Callable[[Job, str], None]:
    def read(job: Job, value: str) -> None:
        job.counts[name] = _positive(value)

    return read


def _positive(value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value, re.ASCII) or not int(value):
        raise ValueError("must be a number from 1")
    return int(value)


def _time(job: Job, value: str) -> None:
    if value.upper() in ("UNLIMITED", "INFINITE", "0"):
        return
    seconds = time_seconds(value)
    if seconds:
        job.assign(f"time_limit={seconds}")


def time_seconds(value: str) -> int:
    """MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, DAYS-HOURS:MINUTES or DAYS-HOURS:MINUTES:SECONDS."""
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


def _array(job: Job, value: str) -> None:
    job.array = ArrayType().convert(value, None, None)
    job.say(f"--array {value}")


def _dependency(job: Job, value: str) -> None:
    """One that cannot be kept is refused: the task would start too early."""
    if "?" in value:
        raise ValueError(
            "any of several is not possible: all of them have to end; say --after behind --"
        )
    for part in filter(None, value.split(",")):
        kind, *tasks = part.split(":")
        if kind == "singleton":
            job.notes.append(
                "--dependency=singleton is so anyway: a name is taken until its task has ended"
            )
        elif kind not in _DEPENDENCIES or not tasks:
            raise ValueError(
                f"{kind} has no equivalent: say --after TASK, TASK:failed or TASK:ended behind --"
            )
        for task in tasks if kind in _DEPENDENCIES else ():
            job.after.append(Dependency(task, _DEPENDENCIES[kind]))
            job.say(f"--after {task}:{_DEPENDENCIES[kind]}")


def _gres(job: Job, value: str) -> None:
    for part in value.split(","):
        kind, *more = part.removeprefix("gres/").split(":")
        if kind == "gpu":
            job.counts["gpus-per-node"] = _positive(more[-1]) if more and more[-1].isdigit() else 1
        else:
            job.notes.append(
                f"--gres={part} is left out; groups of nodes tell what nodes have: `hai groups`"
            )


def _gpus(name: str) -> Callable[[Job, str], None]:
    def read(job: Job, value: str) -> None:
        job.counts[name] = _positive(value.rpartition(":")[2])

    return read


def _memory(name: str) -> Callable[[Job, str], None]:
    def read(job: Job, value: str) -> None:
        match = _MEMORY.fullmatch(value)
        if match is None:
            raise ValueError("must be a number with K, M, G or T")
        job.counts[name] = math.ceil(int(match[1]) * _MEGABYTES[match[2].upper()])

    return read


def _partition(job: Job, value: str) -> None:
    job.group, *others = value.split(",")
    if others:
        job.notes.append(
            f"--partition={value}: takes {job.group}; a task belongs to one group of nodes"
        )
    job.say(f"-g {shlex.quote(job.group)}")


def _qos(job: Job, value: str) -> None:
    level = value.upper().replace("-", "_")
    if level not in PRIORITIES:
        job.notes.append(
            f"--qos={value} is left out; here: -p LEVEL, one of {', '.join(PRIORITIES)}"
        )
        return
    job.priority = PRIORITIES[level]
    job.say(f"-p {level}")


def _export(job: Job, value: str) -> None:
    for part in filter(None, value.split(",")):
        name, equals, assigned = part.partition("=")
        if name == "ALL":
            job.notes.append(
                "--export=ALL is left out; variables of this shell reach a task with -e NAME alone"
            )
        elif equals or name in os.environ:
            job.variables[name] = assigned if equals else os.environ[name]
            job.say(f"-e {shlex.quote(part)}")


def _signal(job: Job, value: str) -> None:
    match = _SIGNAL.fullmatch(value)
    if match is None:
        raise ValueError("must be SIGNAL or SIGNAL@SECONDS")
    signal = _SIGNALS.get(match["name"].upper())
    if signal is None:
        job.notes.append(
            f"--signal={value} is left out; here: --options suspend_signal=SIGUSR1, or SIGTERM"
        )
        return
    job.assign(f"suspend_signal={signal}")
    if seconds := int(match["seconds"] or 0):
        job.assign(f"save_within={min(seconds, _SAVE_SECONDS)}")


def _chdir(job: Job, value: str) -> None:
    job.workspace = os.path.abspath(os.path.join(job.directory, os.path.expanduser(value)))
    job.say(f"--options {shlex.quote(f'spec.workspace={job.workspace}')}")


def _nodelist(job: Job, value: str) -> None:
    if "[" in value:
        raise ValueError("must be names with commas between them; write each name")
    job.assign(f"assigned_nodes=[{', '.join(value.split(','))}]")


def _comment(job: Job, value: str) -> None:
    if _TAG.fullmatch(value):
        job.assign(f"tags=[{value}]")
    else:
        job.notes.append(f"--comment={shlex.quote(value)} is left out; here: --tag LABEL, a word")


_READERS: Mapping[str, Callable[[Job, str], None]] = {
    "job-name": _name,
    "nodes": _nodes,
    "ntasks": _count("ntasks"),
    "ntasks-per-node": _count("ntasks-per-node"),
    "cpus-per-task": _count("cpus-per-task"),
    "cpus-per-gpu": _count("cpus-per-gpu"),
    "time": _time,
    "array": _array,
    "dependency": _dependency,
    "gres": _gres,
    "gpus": _gpus("gpus"),
    "gpus-per-node": _gpus("gpus-per-node"),
    "gpus-per-task": _gpus("gpus-per-task"),
    "mem": _memory("mem"),
    "mem-per-cpu": _memory("mem-per-cpu"),
    "mem-per-gpu": _memory("mem-per-gpu"),
    "partition": _partition,
    "qos": _qos,
    "export": _export,
    "signal": _signal,
    "chdir": _chdir,
    "nodelist": _nodelist,
    "comment": _comment,
}


class Parts(NamedTuple):
    """What a rank gets of a node whose group is shared; 0: not said."""

    gpu: int
    cpu: int
    memory: int  # GB


def process_notes(job: Job) -> list[str]:
    """What is said of options that ask Slurm for several processes on a node."""
    each = job.counts.get("ntasks-per-node", 0)
    several = each > 1 or job.counts.get("ntasks", 1) > node_count(job) * max(each, 1)
    names = [name for name in ("ntasks", "ntasks-per-node") if name in job.counts]
    return [f"--{name}={job.counts[name]}: {_PROCESSES}" for name in names] if several else []


def node_count(job: Job) -> int:
    """Of --nodes, else as many as --ntasks and --ntasks-per-node take."""
    tasks, each = job.counts.get("ntasks", 1), job.counts.get("ntasks-per-node")
    return job.nodes or (math.ceil(tasks / each) if each else 1)


def parts(job: Job, nodes: int) -> Parts:
    """What each node gives, by the sums of Slurm."""
    counts = job.counts
    tasks = counts.get("ntasks-per-node") or math.ceil(counts.get("ntasks", nodes) / nodes)
    gpu = counts.get("gpus-per-node") or counts.get("gpus-per-task", 0) * tasks
    gpu = gpu or math.ceil(counts.get("gpus", 0) / nodes)
    cpu = counts.get("cpus-per-task", 0) * tasks or counts.get("cpus-per-gpu", 0) * gpu
    memory = counts.get("mem") or counts.get("mem-per-cpu", 0) * max(cpu, tasks)
    memory = memory or counts.get("mem-per-gpu", 0) * gpu
    return Parts(gpu, cpu, math.ceil(memory / 1024))


def fill(spec: TaskSpec, job: Job) -> None:
    """Write what the lines say into a task, before its options do."""
    from hai.client.taskfile.spec import apply_option

    spec.name = job.name or spec.name
    spec.resource.node_count = node_count(job)
    spec.resource.group = job.group
    if job.priority is not None:
        spec.priority = job.priority
    spec.spec.workspace = job.workspace or spec.spec.workspace
    spec.spec.environments.update({**_slurm(job), **job.variables})
    for assignment in job.assignments:
        apply_option(spec, f"options.{assignment}")


def _slurm(job: Job) -> dict[str, str]:
    """Variables that scripts compute with; those that only a rank knows are set there (sbatch_script.wrapped)."""
    names = ("cpus-per-task", "ntasks-per-node")
    return {
        f"SLURM_{name.upper().replace('-', '_')}": str(job.counts[name])
        for name in names
        if name in job.counts
    }
