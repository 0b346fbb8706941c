"""Commands and options of other systems, and what does the same here."""

from __future__ import annotations

_RESUBMIT = "hai describe TASK | hai run -"

COMMAND_EQUIVALENTS = {
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
    "rerun": _RESUBMIT,
    "retry": _RESUBMIT,
    "resubmit": _RESUBMIT,
    "clone": _RESUBMIT,
    "restart": f"hai suspend TASK` or, when it has ended, `{_RESUBMIT}",
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
"""The command of another system -> a command line here, or several with words between them. Capitals are placeholders.
"""


def command_lines(hint: str) -> list[str]:
    """Return the command lines in a value of COMMAND_EQUIVALENTS."""
    return [line for part in hint.split("`")[::2] for line in part.split(" > ")[0].split(" | ")]


_TIME, _GPUS = "--options time_limit=2h", "--gpus 1"
_AFTER = "--after TASK"
_HOLD = "`hai suspend TASK --hold` as soon as it is submitted"
_WEBHOOK = "`hai webhook set NAME URL`, once, for all of your tasks"

OPTION_EQUIVALENTS = {
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
    "-H": _HOLD,
    "--hold": _HOLD,
    "-W": "-f",
    "--wait": "-f",
    "--wrap": "`hai exec PROGRAM ARG... --`",
    "--comment": "--tag LABEL",
    "--parsable": "-q",
    "--test-only": "--dry-run",
    "--requeue": "always so; leave it out",
    "--mail-type": _WEBHOOK,
    "--mail-user": _WEBHOOK,
    # SkyPilot, torchrun
    "--num-nodes": "-n NODES",
    "--nnodes": "-n NODES",
}
"""An option of another system -> the option here."""
