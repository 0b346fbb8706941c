"""Reads a script that was written for sbatch: its `#SBATCH` lines, and the commands and variables of Slurm in its
body.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import click

_LONG_NAMES = {
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
"""Options without a value, or with a value only after `=`."""

_PRELUDE = (
    "export SLURM_JOB_ID=$HAI_TASK_ID SLURM_JOB_NAME=$HAI_TASK_NAME SLURM_NNODES=$NNODES SLURM_JOB_NUM_NODES=$NNODES "
    "SLURM_NODEID=$RANK SLURM_PROCID=$RANK SLURM_SUBMIT_DIR=$PWD; "
    '[ -z "$HAI_ARRAY_INDEX" ] || '
    "export SLURM_ARRAY_TASK_ID=$HAI_ARRAY_INDEX SLURM_ARRAY_TASK_COUNT=$HAI_ARRAY_SIZE; "
    'exec bash "$@"'
)
"""It does not set SLURM_NTASKS, SLURM_JOBID and lists of nodes, because with them Lightning and Open MPI would call
srun.
"""

_SET_VARIABLES = frozenset(re.findall(r"SLURM_\w+", _PRELUDE)) | {
    "SLURM_CPUS_PER_TASK",
    "SLURM_NTASKS_PER_NODE",
}

_VARIABLE_HINTS: Mapping[str, str] = {
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
"""A variable that is not set -> the variable to use instead."""

_COMMAND_HINTS: Mapping[str, str] = {
    "srun": "the script starts on every node by itself: leave srun and its options out; torchrun starts processes",
    "module": "nodes have the software of an image or an environment: -i IMAGE, or `source haienv NAME` before hai",
    "ml": "nodes have the software of an image or an environment: -i IMAGE, or `source haienv NAME` before hai",
    "scontrol": "MASTER_ADDR and MASTER_PORT name the first node; `hai` is for the rest",
    "sbatch": "`hai bash FILE --`",
    "squeue": "`hai queue`",
    "sacct": "`hai list --state finished`",
    "scancel": "`hai stop`",
}
"""A command of Slurm that nodes do not have -> what to do instead."""

_COMMAND_CALL = re.compile(rf"(?<![\w./-])({'|'.join(_COMMAND_HINTS)})(?=\s|$)")
_VARIABLE_USE = re.compile(r"\$\{?(SLURMD?_\w+)")


class Directive(NamedTuple):
    """One option of a #SBATCH line."""

    line: int
    name: str  # the long name
    value: str

    def __str__(self) -> str:
        return f"--{self.name}={self.value}" if self.value else f"--{self.name}"


def has_directives(script: str) -> bool:
    """Return True if the script was written for sbatch."""
    return any(line.startswith("#SBATCH") for line in script.splitlines())


def read_directives(script: str, file: str) -> list[Directive]:
    """Return the options before the first command, as sbatch reads them. Raise click.UsageError."""
    directives_found: list[Directive] = []
    for number, line in enumerate(script.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        if not re.match(r"#SBATCH\s", line):
            continue
        try:
            arguments = shlex.split(line.removeprefix("#SBATCH"), comments=True)
            directives_found += _split_options(arguments, number)
        except ValueError as error:
            raise click.UsageError(f"{file}, line {number}: {str(error).lower()}") from None
    return directives_found


def _split_options(arguments: Sequence[str], line: int) -> list[Directive]:
    directives_found, remaining = [], list(arguments)
    while remaining:
        argument = remaining.pop(0)
        name, equals, value = argument.partition("=")
        if argument.startswith("--"):
            name = name[2:]
        elif argument[:2] in _LONG_NAMES:
            name, value = _LONG_NAMES[argument[:2]], argument[2:].removeprefix("=")
            equals = value
        else:
            raise ValueError(f"{argument!r} is not an option")
        if not equals and name not in _FLAGS:
            if not remaining:
                raise ValueError(f"--{name} has no value")
            value = remaining.pop(0)
        directives_found.append(Directive(line, name, value))
    return directives_found


def body_notes(script: str) -> Iterator[str]:
    """Yield a note for each command and variable of Slurm in the script that does not exist here."""
    reported: set[str] = set()
    for number, line in enumerate(script.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        for name in [*_COMMAND_CALL.findall(line), *_VARIABLE_USE.findall(line)]:
            if name in reported or name in _SET_VARIABLES:
                continue
            reported.add(name)
            hint = _COMMAND_HINTS.get(name) or _VARIABLE_HINTS.get(name)
            missing = "is not a command here" if name in _COMMAND_HINTS else "is not set"
            yield f"line {number}: {name} {missing}" + (f"; {hint}" if hint else "")


def wrap_script(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the program and arguments that run a script with the most used variables of Slurm."""
    return "bash", ["-c", _PRELUDE, "bash", *arguments]
