"""Traces: all formats, the order of jobs, and all problems of a file at once."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.errors import Invalid
from hai_backend.domain.priority import Priority
from hai_backend.sim.replay.job import Job
from hai_backend.sim.traces.reader import load, read
from hai_backend.sim.traces.rows import level

GOOD = "j1,,vc1,10,3600,16,2,,,,ann,30"

SACCT = "JobID|JobName|User|Partition|Submit|Start|End|State|NNodes|AllocTRES|QOS|Priority"
RAN = "2026-03-01T10:00:00|2026-03-01T10:05:00|2026-03-01T11:05:00|COMPLETED"

SWF_LINE = "1 0 5 100 16 -1 -1 16 -1 -1 1 7 3 2 1 1 -1 -1"


def problems(path: Path, **options: object) -> list[str]:
    with pytest.raises(Invalid) as caught:
        read(path, **{"gpus_per_node": 8, **options})
    return [str(violation).replace(f"{path.parent}/", "") for violation in caught.value.violations]


def test_a_line_of_our_csv_is_a_job(csv) -> None:
    assert read(csv(GOOD), gpus_per_node=8) == (
        Job(1, "vc1", "ann", 0.0, 3600.0, gpus=16, nodes=2, priority=Priority.HIGH),
    )


def test_columns_of_the_file_override_synthetic_ones(csv) -> None:
    (job,) = read(csv("j1,bob,vc1,10,3600,16,2,,,50,ann,30"), gpus_per_node=8)
    assert (job.user, job.priority) == ("bob", Priority.EXTREME_HIGH)


def test_jobs_are_sorted_shifted_and_scaled_and_keep_the_order_of_the_file_on_ties(csv) -> None:
    path = csv("a,,late,120,5,1,1,,,,u,", "b,,first,20,6,1,1,,,,u,", "c,,second,20,7,1,1,,,,u,")
    jobs = read(path, gpus_per_node=8, time_scale=5)
    assert [(j.id, j.name, j.submit, j.duration) for j in jobs] == [
        (1, "first", 0.0, 6.0),
        (2, "second", 0.0, 7.0),
        (3, "late", 20.0, 5.0),
    ]


def test_flat_priority_makes_all_jobs_normal(csv) -> None:
    assert read(csv(GOOD), gpus_per_node=8, flat_priority=True)[0].priority is Priority.NORMAL


@pytest.mark.parametrize(
    ("gpus", "column", "per_node", "nodes"),
    [
        pytest.param(16, "2", 8, 2, id="as the column says"),
        pytest.param(17, "", 8, 3, id="rounded up"),
        pytest.param(16, "2", 4, 4, id="other nodes than the column means"),
        pytest.param(0, "", 8, 1, id="no GPU takes a node"),
        pytest.param(0, "0", 8, 1, id="no GPU and no nodes takes a node"),
        pytest.param(0, "3", 8, 3, id="nodes without GPUs"),
    ],
)
def test_nodes(csv, gpus: int, column: str, per_node: int, nodes: int) -> None:
    (job,) = read(csv(f"j,,v,0,1,{gpus},{column},,,,u,"), gpus_per_node=per_node)
    assert job.nodes == nodes


def test_few_columns_in_any_order_are_enough(csv) -> None:
    path = csv("8,60,0,x", header="gpus,duration_s,submit_s,remark")
    assert read(path, gpus_per_node=8) == (Job(1, "", "unknown", 0.0, 60.0, gpus=8, nodes=1),)


def test_gzip_windows_line_ends_and_byte_order_marks_are_read(csv, tmp_path: Path) -> None:
    text = "\ufeff" + csv(GOOD).read_text().replace("\n", "\r\n")
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(text.encode()))
    assert len(read(packed, gpus_per_node=8)) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("30", Priority.HIGH, id="exact"),
        pytest.param("high", Priority.HIGH, id="by name"),
        pytest.param("33", Priority.HIGH, id="nearest"),
        pytest.param("9", Priority.UNDER_NORMAL, id="of two the lower"),
        pytest.param("10.0", Priority.NORMAL, id="as a spreadsheet writes it"),
    ],
)
def test_levels(text: str, expected: Priority) -> None:
    assert level(text) is expected


def test_every_problem_is_reported_with_its_position(csv) -> None:
    path = csv(
        GOOD,
        "j2,,v,nan,-5,1.5,1,,,99,u,",
        "j3,,v,0",
        "",
        "j4,,v,0,1,16,3,,,,u,x",
    )
    assert problems(path) == [
        "jobs.csv:3, column submit_s: 'nan' is not a number of seconds; write one such as 3600 or 0.5",
        "jobs.csv:3, column duration_s: '-5' is negative; a job runs 0 seconds or more",
        "jobs.csv:3, column gpus: '1.5' is not a whole number; write 0, 1, 2, …",
        "jobs.csv:3, column priority: '99' is not a priority; levels are 50 EXTREME_HIGH, 40 VERY_HIGH, 30 HIGH, "
        "20 ABOVE_NORMAL, 10 NORMAL, 8 UNDER_NORMAL, 5 BELOW_NORMAL, 0 LOW",
        "jobs.csv:4: 4 columns, the header has 12; quote cells that hold a comma",
        "jobs.csv:6, column priority_synth: 'x' is not a priority; levels are 50 EXTREME_HIGH, 40 VERY_HIGH, 30 HIGH, "
        "20 ABOVE_NORMAL, 10 NORMAL, 8 UNDER_NORMAL, 5 BELOW_NORMAL, 0 LOW",
        "jobs.csv:6, column nodes_8gpu: 3, but 16 GPUs take 2 nodes of 8; correct one of the two",
    ]


def test_beyond_twenty_problems_only_their_number_is_reported(csv) -> None:
    told = problems(csv(*["j,,v,x,1,1,1,,,,u,"] * 23))
    assert len(told) == 21
    assert told[-1] == "jobs.csv: and 3 more problems"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "not recognised: its first line is ''", id="empty"),
        pytest.param(b"hello\n", "not recognised: its first line is 'hello'", id="prose"),
        pytest.param(b"submit_s,gpus\n1,2\n", "f:1: the header lacks duration_s", id="no column"),
        pytest.param(b"submit_s,duration_s,gpus\n", "f: no job in it", id="no job"),
        pytest.param(b"submit_s\n\xff\n", "f:2: not text in UTF-8", id="not text"),
        pytest.param(gzip.compress(b"x" * 99)[:-9], "f: the gzip file is damaged", id="cut gzip"),
        pytest.param(b'submit_s,duration_s,gpus\n"' + b"x" * 200_000, "not CSV", id="huge cell"),
        pytest.param(b"JobID|Submit|Start|End\n", "lacks AllocTRES or NNodes", id="no size"),
        pytest.param(b"JobID|Start|NNodes\n", "lacks Submit, End", id="no times"),
        pytest.param(b"; SWF\n1 2 3\n", "f:2: 3 columns, SWF has 18", id="short SWF"),
    ],
)
def test_files_that_are_no_traces(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    assert said in problems(path)[0]


def sacct(tmp_path: Path, *lines: str, header: str = SACCT) -> Path:
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join((header, *lines)) + "\n")
    return path


def test_jobs_of_sacct(tmp_path: Path) -> None:
    path = sacct(
        tmp_path,
        f"7|bert-large-12|ann|gpu|{RAN}|2|cpu=64,gres/gpu=16,gres/gpu:a100=16,node=2|high|4294901",
        f"8_1||bob|cpu|{RAN}|3|cpu=9,node=3|normal|",
        f"9||bob|gpu|{RAN}|1|gres/gpu:a100=4,gres/gpu:v100=2|debug|20",
    )
    assert read(path, gpus_per_node=8) == (
        Job(1, "bert-large", "ann", 0.0, 3600.0, gpus=16, nodes=2, priority=Priority.HIGH),
        Job(2, "cpu", "bob", 0.0, 3600.0, gpus=0, nodes=3, priority=Priority.NORMAL),
        Job(3, "gpu", "bob", 0.0, 3600.0, gpus=6, nodes=1, priority=Priority.ABOVE_NORMAL),
    )


def test_steps_and_jobs_that_have_not_run_are_left_out_and_counted(tmp_path: Path) -> None:
    times = "2026-03-01T10:00:00"
    path = sacct(
        tmp_path,
        f"7|a|ann|gpu|{RAN}|1|gres/gpu=8|normal|1",
        f"7.batch|batch|||{RAN}|1|gres/gpu=8||",
        f"7.0|x|||{RAN}|1|gres/gpu=8||",
        f"8|a|ann|gpu|{times}|Unknown|Unknown|PENDING|1||normal|1",
        f"9|a|ann|gpu|{times}|{times}|Unknown|RUNNING|1||normal|1",
        f"10|a|ann|gpu|{times}|None|{times}|CANCELLED by 0|1||normal|1",
    )
    trace = load(path, gpus_per_node=8)
    assert len(trace.jobs) == 1
    assert trace.skipped == {"steps of jobs": 2, "never started": 2, "not ended": 1}


def test_sacct_with_a_trailing_bar_and_epoch_times_is_read(tmp_path: Path) -> None:
    path = sacct(tmp_path, "1|100|200|260|4|", header="JobID|Submit|Start|End|NNodes|")
    assert read(path, gpus_per_node=8) == (Job(1, "", "unknown", 0.0, 60.0, gpus=0, nodes=4),)


def test_wrong_lines_of_sacct(tmp_path: Path) -> None:
    path = sacct(
        tmp_path,
        "1|yesterday|2026-03-01T10:05:00|2026-03-01T10:06:00|1",
        "2|2026-03-01T10:00:00|2026-03-01T10:05:00|2026-03-01T10:04:00|many",
        "3|a|b|c|d|e",
        header="JobID|Submit|Start|End|NNodes",
    )
    assert problems(path) == [
        "sacct.txt:2, column Submit: 'yesterday' is not a time such as 2026-11-21T17:05:00",
        "sacct.txt:3, column End: 2026-03-01T10:04:00 is before the start, 2026-03-01T10:05:00",
        "sacct.txt:3, column NNodes: 'many' is not a whole number; write 0, 1, 2, …",
        "sacct.txt:4: 6 columns, the header has 5; sacct does not quote: leave out columns that may hold a `|`, "
        "such as JobName",
    ]


def test_jobs_of_swf(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    lines = [
        "; Version: 2.2",
        SWF_LINE,
        SWF_LINE.replace("1 0 5 100 16", "2 9 5 -1 16"),
        SWF_LINE.replace("16 -1 -1 16", "0 -1 -1 -1"),
        "3 30 0 50.5 -1 -1 -1 4 -1 -1 1 -1 3 -1 2 1 -1 -1",
    ]
    path.write_text("\n".join(lines))
    trace = load(path, gpus_per_node=8)
    assert trace.format == "swf"
    assert trace.jobs == (
        Job(1, "program-2", "user-7", 0.0, 100.0, gpus=16, nodes=2),
        Job(2, "queue-2", "unknown", 30.0, 50.5, gpus=4, nodes=1),
    )
    assert trace.skipped == {"without a run time": 1, "without processors": 1}


def test_swf_is_recognised_without_a_comment_and_any_format_can_be_forced(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(SWF_LINE)
    assert load(path, gpus_per_node=8).format == "swf"
    assert "lacks submit_s" in problems(path, format="csv")[0]


def test_wrong_numbers_of_swf(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("; x\n" + SWF_LINE.replace("100", "1e"))
    assert problems(path) == [
        "log:2, column 4 (run time): '1e' is not a number of seconds; write one such as 3600 or 0.5"
    ]


rows = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 64)), min_size=1
)


@given(rows, st.sampled_from([0.5, 1, 5]))
def test_no_job_is_lost_and_order_holds(tmp_path_factory, found, scale: float) -> None:
    path = tmp_path_factory.mktemp("t") / "jobs.csv"
    path.write_text("submit_s,duration_s,gpus\n" + "".join(f"{s},{d},{g}\n" for s, d, g in found))
    jobs = read(path, gpus_per_node=8, time_scale=scale)
    assert [j.id for j in jobs] == list(range(1, len(found) + 1))
    assert jobs[0].submit == 0
    assert [j.submit for j in jobs] == sorted(j.submit for j in jobs)
    assert sorted((j.duration, j.gpus) for j in jobs) == sorted((d, g) for _, d, g in found)
    assert all(j.nodes >= 1 and j.nodes * 8 >= j.gpus for j in jobs)
