"""Scripts for sbatch: how they become tasks, which notes are printed, and how they run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hai_tui.cli.submission import sbatch_options
from hai_tui.cli.submission.sbatch_script import Directive, body_notes, read_directives, wrap_script

DDP = """\
#!/bin/bash -l
#SBATCH --job-name=ddp-resnet
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --mem=200G
#SBATCH --time=1-12:00:00
#SBATCH --partition=a100
#SBATCH --account=proj42
#SBATCH --output=logs/%x-%j.out
#SBATCH --error=logs/%x-%j.err
#SBATCH --mail-type=END,FAIL
#SBATCH --signal=B:USR1@120
#SBATCH --requeue

module load cuda/12.4 python
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=4 --node_rank=$SLURM_NODEID train.py
#SBATCH --nodes=64
"""

ARRAY = """\
#!/bin/bash
#SBATCH -J sweep -t 30
#SBATCH -a 1-20:2%4   # odd numbers
#SBATCH -p debug,long
#SBATCH --export=ALL,LR=0.1,DATA=/scratch
#SBATCH -c 4 --mem-per-cpu=2G
python fit.py --index $SLURM_ARRAY_TASK_ID
"""

CHAIN = """\
#!/usr/bin/env bash
#SBATCH --dependency=afterok:1:2,afterany:3
#SBATCH -n 8 --ntasks-per-node 4
#SBATCH -G a100:8
#SBATCH --qos=high
#SBATCH --comment="run of Friday"
#SBATCH -D /
#SBATCH --begin=now+1hour
#SBATCH --no-requeue
#SBATCH --exclusive
echo $SLURM_NTASKS
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("ddp.sh", DDP), ("array.sbatch", ARRAY), ("chain.sh", CHAIN)):
        (tmp_path / name).write_text(text)
    return tmp_path


def job(text: str) -> sbatch_options.Job:
    script = f"#!/bin/bash\n#SBATCH {text}\n"
    return sbatch_options.read_job(read_directives(script, "a.sh"), "a.sh", "/here")


def test_a_distributed_training(place: Path, hai, fake) -> None:
    done = hai("bash", "ddp.sh", "--lr", "1", "--")
    assert done.out == "submitted task 4 (ddp-resnet)\n"
    spec = fake.world.tasks[4].spec
    assert (spec.resource.node_count, spec.resource.group) == (2, "a100")
    assert spec.options.time_limit == 36 * 3600
    assert (spec.options.suspend_signal, spec.options.save_within) == ("SIGUSR1", 120)
    assert (spec.spec.entrypoint, list(spec.spec.parameters[2:])) == (
        "bash",
        ["bash", "ddp.sh", "--lr", "1"],
    )
    assert dict(spec.spec.environments) == {
        "SLURM_CPUS_PER_TASK": "32",
        "SLURM_NTASKS_PER_NODE": "1",
    }
    told = [line.removeprefix("ddp.sh: ") for line in done.err.splitlines()]
    assert told[0].startswith(
        "read from ddp.sh, as if given after --: --name ddp-resnet -n 2 --options time_limit=129600"
    )
    assert [line.split("; ")[0] for line in told if "is ignored" in line] == [
        "--account=proj42 is ignored",
        "--output=logs/%x-%j.out is ignored",
        "--error=logs/%x-%j.err is ignored",
        "--mail-type=END,FAIL is ignored",
    ]
    assert [line.split(";")[0] for line in told if line.startswith("line ")] == [
        "line 17: module is not a command here",
        "line 18: scontrol is not a command here",
        "line 18: SLURM_JOB_NODELIST is not set",
        "line 19: srun is not a command here",
    ]


def test_an_array(place: Path, hai, fake) -> None:
    done = hai("bash", "array.sbatch", "--")
    assert done.code == 0, done.err
    made = [fake.world.tasks[id].spec for id in range(4, 14)]
    assert [spec.name for spec in made] == [f"sweep-{i}" for i in range(1, 20, 2)]
    assert made[1].spec.environments["HAI_ARRAY_INDEX"] == "3"
    assert (made[0].spec.environments["LR"], made[0].resource.group) == ("0.1", "debug")
    assert made[0].options.time_limit == 1800
    assert [after.task for after in made[4].options.after] == [4], "four at a time"
    assert "--partition=debug,long: uses debug" in done.err
    assert "--export=ALL is ignored" in done.err


def test_one_after_the_others(place: Path, hai, fake) -> None:
    fake.world.tasks[3].user = fake.world.user
    done = hai("bash", "chain.sh", "--")
    assert done.code == 0, done.err
    spec = fake.world.tasks[4].spec
    after = [(each.task, each.outcome) for each in spec.options.after]
    assert after == [(1, "succeeded"), (2, "succeeded"), (3, "ended")]
    assert (spec.resource.node_count, spec.priority, spec.spec.workspace) == (2, 30, "/")
    assert spec.spec.parameters[3] == str(place / "chain.sh"), "the script is not in that directory"
    for option in ("--comment='run of Friday'", "--begin=now+1hour", "--no-requeue"):
        assert f"{option} is ignored" in done.err
    assert "--ntasks-per-node=4: the script starts once on each node" in done.err
    assert "line 11: SLURM_NTASKS is not set; WORLD_SIZE, which counts nodes" in done.err
    assert "exclusive" not in done.err


def test_options_behind_the_separator_win(place: Path, hai, fake) -> None:
    line = "-n 4 -g small --name mine --options time_limit=60 -e LR=7 --array 1-2 --after 1"
    assert hai("bash", "ddp.sh", "--", *line.split()).code == 0
    spec = fake.world.tasks[4].spec
    assert (spec.name, spec.resource.node_count, spec.resource.group) == ("mine-1", 4, "small")
    assert (spec.options.time_limit, spec.spec.environments["LR"]) == (60, "7")
    hai("bash", "array.sbatch", "--", "--name", "other", "-e", "LR=7", "--array", "5")
    assert fake.world.tasks[6].spec.spec.environments["LR"] == "7"
    assert fake.world.tasks[6].name == "other-5"
    hai("bash", "chain.sh", "--", "--after", "1:ended")
    assert [a.outcome for a in fake.world.tasks[7].spec.options.after] == ["ended"]


@pytest.mark.parametrize("packed", [True, False], ids=["shared nodes", "whole nodes"])
def test_parts_of_nodes_are_for_groups_whose_nodes_are_shared(
    place: Path, hai, fake, packed: bool
) -> None:
    (place / "part.sh").write_text("#SBATCH --gres=gpu:1 -c 8 --mem=15500M\npython a.py\n")
    fake.world.packed |= {"default"} if packed else set()
    done = hai("bash", "part.sh", "--")
    resource = fake.world.tasks[4].spec.resource
    wanted = (1, 8, 16) if packed else (1, 0, 0)
    assert (resource.gpu, resource.cpu, resource.memory) == wanted
    assert ("nodes of group default are given whole" in done.err) is not packed


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("--nodes=2", [("nodes", "2")], id="long with ="),
        pytest.param("--nodes 2", [("nodes", "2")], id="long with a blank"),
        pytest.param("-N2 -n 4", [("nodes", "2"), ("ntasks", "4")], id="short"),
        pytest.param('-J "a b" # name', [("job-name", "a b")], id="quotes and a comment"),
        pytest.param("--requeue -t 10", [("requeue", ""), ("time", "10")], id="a flag"),
        pytest.param("--exclusive=user", [("exclusive", "user")], id="a flag with a value"),
        pytest.param("-H", [("hold", "")], id="short flag"),
    ],
)
def test_how_a_line_is_read(line: str, expected: list[tuple[str, str]]) -> None:
    found = read_directives(f"#!/bin/sh\n\n# a comment\n#SBATCH {line}\necho\n", "a.sh")
    assert found == [Directive(4, name, value) for name, value in expected]


def test_lines_behind_the_first_command_and_others_comments_are_none() -> None:
    script = (
        "#!/bin/sh\n##SBATCH -N 1\n#SBATCHX -N 2\n# SBATCH -N 3\n#SBATCH -N 4\ncd\n#SBATCH -N 5\n"
    )
    assert read_directives(script, "a.sh") == [Directive(5, "nodes", "4")]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("30:15", 1815), ("1:30:00", 5400), ("2-0", 172_800), ("1-12:30", 131_400), ("1-0:0:1", 86_401)],
)  # fmt: skip
def test_times_are_those_of_slurm(text: str, seconds: int) -> None:
    assert sbatch_options.parse_time(text) == seconds


@pytest.mark.parametrize(
    ("text", "nodes", "expected"),
    [
        pytest.param("--gres=gpu:a100:2", 1, (2, 0, 0), id="gres with a type"),
        pytest.param("--gres=gpu", 1, (1, 0, 0), id="gres without a number"),
        pytest.param("--gpus=8 -N 2", 2, (4, 0, 0), id="GPUs in all"),
        pytest.param("--gpus-per-task=1 --ntasks-per-node=4", 1, (4, 0, 0), id="GPUs of a task"),
        pytest.param("-n 4 -c 2 --mem-per-cpu=1G", 1, (0, 8, 8), id="tasks of one node"),
        pytest.param("--gpus-per-node=2 --cpus-per-gpu=6 --mem-per-gpu=40G", 1, (2, 12, 80), id="by GPU"),
        pytest.param("--mem=4000", 1, (0, 0, 4), id="megabytes"),
        pytest.param("--mem=1T", 1, (0, 0, 1024), id="a terabyte"),
        pytest.param("--mem=0", 1, (0, 0, 0), id="all of the node"),
    ],
)  # fmt: skip
def test_what_a_rank_gets(text: str, nodes: int, expected: tuple[int, int, int]) -> None:
    assert sbatch_options.node_parts(job(text), nodes) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("--nodes=two", "--nodes=two: must be a number from 1", id="no number"),
        pytest.param("--time=soon", "must be MINUTES", id="no time"),
        pytest.param("--mem=much", "must be a number with K, M, G or T", id="no size"),
        pytest.param("--array=a-b", "is not as 1-10", id="no array"),
        pytest.param("--dependency=after:1", "after has no equivalent", id="begun"),
        pytest.param("--dependency=afterok:1?afterok:2", "waits for all of its dependencies", id="any of them"),
        pytest.param("-w node[1-3]", "write each name", id="a range of nodes"),
        pytest.param("--nodes", "--nodes has no value", id="no value"),
        pytest.param("train.py", "'train.py' is not an option", id="no option"),
        pytest.param("-J 'a", "no closing quotation", id="an open quote"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_with_its_line(
    place: Path, hai, fake, text: str, message: str
) -> None:
    (place / "wrong.sh").write_text(f"#!/bin/bash\n#SBATCH {text}\ntrue\n")
    done = hai("bash", "wrong.sh", "--")
    assert done.code == 2
    assert "wrong.sh" in done.err
    assert "line 2" in done.err
    assert message in done.err
    assert set(fake.world.tasks) == {1, 2, 3}


def test_all_that_cannot_be_read_is_told_at_once(place: Path, hai) -> None:
    (place / "wrong.sh").write_text("#SBATCH -N x\n#SBATCH -t y\n")
    done = hai("bash", "wrong.sh", "--")
    assert "line 1: --nodes=x" in done.err
    assert "line 2: --time=y" in done.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("srun python a.py", "srun is not a command here; the script starts on every", id="srun"),
        pytest.param("  time srun -n 4 ./a", "srun is not a command here", id="behind a word"),
        pytest.param("ml PyTorch/2.1", "ml is not a command here; nodes have the software", id="ml"),
        pytest.param("echo ${SLURM_LOCALID}", "SLURM_LOCALID is not set; LOCAL_RANK", id="variable"),
        pytest.param("echo $SLURM_CLUSTER_NAME", "SLURM_CLUSTER_NAME is not set", id="another one"),
        pytest.param("echo $SLURM_JOB_ID $SLURM_PROCID", "", id="what is set"),
        pytest.param("# srun a", "", id="a comment"),
        pytest.param("./my-srun x; python module.py", "", id="other words"),
    ],
)  # fmt: skip
def test_what_a_script_calls_and_reads_of_slurm(line: str, told: str) -> None:
    found = list(body_notes(f"#!/bin/bash\n{line}\n{line}\n"))
    assert [each.startswith(f"line 2: {told}") for each in found] == ([True] if told else [])


def test_a_script_finds_the_variables_of_slurm_and_its_arguments(tmp_path: Path) -> None:
    script = tmp_path / "a.sh"
    script.write_text(
        'echo "$SLURM_JOB_ID $SLURM_NODEID $SLURM_NNODES $SLURM_JOB_NAME ${SLURM_ARRAY_TASK_ID-none} $0 $#"'
    )
    program, arguments = wrap_script([str(script), "a b", ""])
    here = {
        "PATH": "/usr/bin:/bin",
        "HAI_TASK_ID": "7",
        "HAI_TASK_NAME": "a b",
        "RANK": "1",
        "NNODES": "2",
    }
    for index, expected in (({}, "none"), ({"HAI_ARRAY_INDEX": "3", "HAI_ARRAY_SIZE": "9"}, "3")):
        done = subprocess.run(
            [program, *arguments], env={**here, **index}, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"7 1 2 a b {expected} {script} 2\n"


def test_a_script_without_such_lines_is_submitted_as_it_is(place: Path, hai, fake) -> None:
    (place / "plain.sh").write_text("#!/bin/bash\nsrun a\n")
    assert "srun" not in hai("bash", "plain.sh", "--").err
    assert fake.world.tasks[4].spec.spec.entrypoint == "plain.sh"
