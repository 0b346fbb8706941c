"""A script that was written for sbatch: its `#SBATCH` lines, and what of Slurm it calls and reads besides."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import click

_SHORT = {
    "-A": "account", "-a": "array", "-b": "begin", "-C": "constraint", "-c": "cpus-per-task", "-D": "chdir",
    "-d": "dependency", "-e": "error", "-F": "nodefile", "-G": "gpus", "-H": "hold", "-i": "input", "-J": "job-name",
    "-k": "no-kill", "-L": "licenses", "-m": "distribution", "-M": "clusters", "-N": "nodes", "-n": "ntasks",
    "-o": "output", "-O": "overcommit", "-p": "partition", "-Q": "quiet", "-q": "qos", "-s": "oversubscribe",
    "-S": "core-spec", "-t": "time", "-v": "verbose", "-w": "nodelist", "-W": "wait", "-x": "exclude",
}  # fmt: skip
_FLAGS = frozenset({
    "contiguous", "exclusive", "get-user-env", "hold", "no-kill", "no-requeue", "overcommit", "oversubscribe",
    "parsable", "quiet", "requeue", "spread-job", "test-only", "use-min-nodes", "verbose", "wait",
})  # fmt: skip
"""Options without a value, or with one behind = only."""

_PRELUDE = (
    "export SLURM_JOB_ID=$HAI_TASK_ID SLURM_JOB_NAME=$HAI_TASK_NAME SLURM_NNODES=$NNODES SLURM_JOB_NUM_NODES=$NNODES "
    "SLURM_NODEID=$RANK SLURM_PROCID=$RANK SLURM_SUBMIT_DIR=$PWD; "
    '[ -z "$HAI_ARRAY_INDEX" ] || '
    "export SLURM_ARRAY_TASK_ID=$HAI_ARRAY_INDEX SLURM_ARRAY_TASK_COUNT=$HAI_ARRAY_SIZE; "
    'exec bash "$@"'
)
"""Not SLURM_NTASKS, SLURM_JOBID and lists of nodes: with them Lightning and Open MPI would call srun."""

_SET = frozenset(re.findall(r"SLURM_\w+", _PRELUDE)) | {
    "SLURM_CPUS_PER_TASK",
    "SLURM_NTASKS_PER_NODE",
}

_VARIABLES: Mapping[str, str] = {
    "SLURM_NTASKS": "WORLD_SIZE, which counts nodes; torchrun counts processes",
    "SLURM_NPROCS": "WORLD_SIZE, which counts nodes; torchrun counts processes",
    "SLURM_JOB_NODELIST": "MASTER_ADDR and MASTER_PORT, which are set on every node",
    "SLURM_NODELIST": "MASTER_ADDR and MASTER_PORT, which are set on every node",
    "SLURMD_NODENAME": "HAI_NODE_NAME",
    "SLURM_JOBID": "HAI_TASK_ID",
    "SLURM_ARRAY_JOB_ID": "HAI_TASK_ID; each element is a task",
    "SLURM_LOCALID": "LOCAL_RANK of torchrun",
    "SLURM_RESTART_COUNT": "HAI_RUN, which counts from 1",
    "SLURM_TMPDIR": "TMPDIR",
    "SLURM_GPUS_ON_NODE": "CUDA_VISIBLE_DEVICES",
    "SLURM_JOB_PARTITION": "MARSV2_NB_GROUP",
}
"""What is not set for a script -> what is."""

_COMMANDS: Mapping[str, str] = {
    "srun": "the script starts on every node by itself: leave srun and its options out; torchrun starts processes",
    "module": "nodes have the software of an image or an environment: -i IMAGE, or `source haienv NAME` before hai",
    "ml": "nodes have the software of an image or an environment: -i IMAGE, or `source haienv NAME` before hai",
    "scontrol": "MASTER_ADDR and MASTER_PORT name the first node; `hai` is for the rest",
    "sbatch": "`hai bash FILE --`",
    "squeue": "`hai queue`",
    "sacct": "`hai list --state finished`",
    "scancel": "`hai stop`",
}
"""What a node has no command for -> what to do."""

_CALL = re.compile(rf"(?<![\w./-])({'|'.join(_COMMANDS)})(?=\s|$)")
_READ = re.compile(r"\$\{?(SLURMD?_\w+)")


class Directive(NamedTuple):
    """One option of a script."""

    line: int
    name: str  # the long one
    value: str

    def __str__(self) -> str:
        return f"--{self.name}={self.value}" if self.value else f"--{self.name}"


def has_directives(script: str) -> bool:
    """Whether a script was written for sbatch."""
    return any(line.startswith("#SBATCH") for line in script.splitlines())


def directives(script: str, file: str) -> list[Directive]:
    """The options before the first command, as sbatch reads them. Raises click.UsageError."""
    found: list[Directive] = []
    for number, line in enumerate(script.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        if not re.match(r"#SBATCH\s", line):
            continue
        try:
            arguments = shlex.split(line.removeprefix("#SBATCH"), comments=True)
            found += _options(arguments, number)
        except ValueError as error:
            raise click.UsageError(f"{file}, line {number}: {str(error).lower()}") from None
    return found


def _options(arguments: Sequence[str], line: int) -> list[Directive]:
    found, remaining = [], list(arguments)
    while remaining:
        argument = remaining.pop(0)
        name, equals, value = argument.partition("=")
        if argument.startswith("--"):
            name = name[2:]
        elif argument[:2] in _SHORT:
            name, value = _SHORT[argument[:2]], argument[2:].removeprefix("=")
            equals = value
        else:
            raise ValueError(f"{argument!r} is no option")
        if not equals and name not in _FLAGS:
            if not remaining:
                raise ValueError(f"--{name} has no value")
            value = remaining.pop(0)
        found.append(Directive(line, name, value))
    return found


def body_notes(script: str) -> Iterator[str]:
    """What the script calls or reads of Slurm and will not find: once each, with its line."""
    reported: set[str] = set()
    for number, line in enumerate(script.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        for name in [*_CALL.findall(line), *_READ.findall(line)]:
            if name in reported or name in _SET:
                continue
            reported.add(name)
            hint = _COMMANDS.get(name) or _VARIABLES.get(name)
            missing = "is no command here" if name in _COMMANDS else "is not set"
            yield f"line {number}: {name} {missing}" + (f"; {hint}" if hint else "")


def wrapped(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The program and its arguments that run a script with the variables of Slurm that most scripts read."""
    return "bash", ["-c", _PRELUDE, "bash", *arguments]
