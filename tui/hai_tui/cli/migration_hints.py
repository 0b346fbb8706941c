"""Words of other systems that people's fingers know, and what does the same here."""

from __future__ import annotations

_AGAIN = "hai describe TASK | hai run -"

EQUIVALENTS = {
    # Slurm
    "sbatch": "hai bash FILE -- -n NODES",
    "srun": "hai exec PROGRAM -- -n NODES -f",
    "salloc": "hai container create NAME",
    "sattach": "hai logs TASK -f",
    "squeue": "hai queue",
    "sprio": "hai why TASK",
    "scancel": "hai stop TASK",
    "sacct": "hai list --state finished -o wide",
    "sstat": "hai usage TASK",
    "seff": "hai usage TASK",
    "sprof": "hai usage TASK",
    "sreport": "hai usage` or `hai list --state finished --all -o json",
    "sshare": "hai share list",
    "sinfo": "hai nodes",
    "scontrol": "hai describe TASK",
    "sacctmgr": "hai quota list",
    "hold": "hai suspend TASK --hold",
    "release": "hai resume TASK",
    "requeue": "hai suspend TASK",
    # SkyPilot, Volcano, kubectl, Docker
    "launch": "hai run FILE.yaml",
    "submit": "hai run FILE.yaml",
    "create": "hai run FILE.yaml",
    "apply": "hai run FILE.yaml",
    "job": "hai list",
    "jobs": "hai list",
    "get": "hai list",
    "ps": "hai list",
    "ls": "hai list",
    "history": "hai list --state finished",
    "info": "hai status TASK",
    "show": "hai status TASK",
    "inspect": "hai describe TASK",
    "log": "hai logs TASK",
    "tail": "hai logs TASK -f",
    "wait": "hai status TASK --wait",
    "cp": "hai workspace push` or `hai workspace download PATH",
    "scp": "hai workspace push` or `hai workspace download PATH",
    "sync": "hai workspace push",
    "rerun": _AGAIN,
    "retry": _AGAIN,
    "resubmit": _AGAIN,
    "clone": _AGAIN,
    "restart": f"hai suspend TASK` or, when it has ended, `{_AGAIN}",
    "edit": "hai describe TASK > new.yaml` and, when it is changed, `hai run new.yaml",
    "start": "hai run FILE.yaml` or, when it is held, `hai resume TASK",
    "pause": "hai suspend TASK --hold",
    "unpause": "hai resume TASK",
    "continue": "hai resume TASK",
    "cancel": "hai stop TASK",
    "rm": "hai stop TASK",
    "remove": "hai stop TASK",
    "delete": "hai stop TASK",
    "kill": "hai stop TASK",
    "attach": "hai logs TASK -f",
    "ssh": "hai shell TASK",
    "cordon": "hai node cordon NODE",
    "uncordon": "hai node uncordon NODE",
    "drain": "hai node drain NODE",
    # HAI's own hai-cli
    "hfai": "hai",
    "monitor": "hai top",
    "prof": "hai usage TASK",
    "jupyter": "hai container create NAME",
    "user_quota": "hai whoami",
}
"""Word -> command line, or several with words between them; capitals stand for what one fills in."""


def command_lines(hint: str) -> list[str]:
    """The command lines in a value of SAID_HERE, one by one."""
    return [line for part in hint.split("`")[::2] for line in part.split(" > ")[0].split(" | ")]


_TIME, _GPUS = "--options time_limit=2h", "--options resource.gpu=1"
_AFTER = "--after TASK"
_HELD = "`hai suspend TASK --hold` as soon as it is submitted"
_TOLD = "`hai webhook set NAME URL`, once, for all of your tasks"

OPTIONS_HERE = {
    # Slurm
    "-N": "-n NODES",
    "-J": "--name NAME",
    "--job-name": "--name NAME",
    "-t": _TIME,
    "--time": _TIME,
    "--partition": "-g GROUP",
    "--qos": "-p PRIORITY",
    "--export": "-e NAME=VALUE",
    "--gres": _GPUS,
    "--gpus": _GPUS,
    "--gpus-per-node": _GPUS,
    "-c": "--options resource.cpu=4",
    "--cpus-per-task": "--options resource.cpu=4",
    "--mem": "--options resource.memory=8",
    "--signal": "--options suspend_signal=SIGUSR1",
    "-w": "--options 'assigned_nodes=[NODE]'",
    "--nodelist": "--options 'assigned_nodes=[NODE]'",
    "-a": "--array 1-10",
    "-d": _AFTER,
    "--dependency": _AFTER,
    "-C": "-g GROUP#ZONE",
    "--constraint": "-g GROUP#ZONE",
    "-H": _HELD,
    "--hold": _HELD,
    "-W": "-f",
    "--wait": "-f",
    "--wrap": "`hai exec PROGRAM ARG... --`",
    "--comment": "--tag LABEL",
    "--parsable": "-q",
    "--test-only": "--dry-run",
    "--requeue": "always so; leave it out",
    "--mail-type": _TOLD,
    "--mail-user": _TOLD,
    # SkyPilot, torchrun
    "--num-nodes": "-n NODES",
    "--nnodes": "-n NODES",
}
"""Options of those who submit elsewhere -> what says it here."""
