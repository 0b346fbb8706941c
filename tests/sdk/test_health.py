"""The health report, the list of GPUs, and the hook that uses them, on machines with and without the hardware."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Sequence
from pathlib import Path

import pytest

from hai.task import gpu, health, hook
from hai.task.health import Status

CARDS = [("0", "GPU-a", "H100", "97", "4000", "81559"), ("1", "GPU-b", "H100", "0", "0", "81559")]
HOLDERS = [("GPU-a", "4242", "3900"), ("GPU-a", "7", "100")]


def smi(ecc: Sequence[str] = ("0", "0")) -> gpu.Query:
    def query(table: str, columns: Sequence[str]) -> list[gpu.Row] | None:
        if table == "compute-apps":
            return list(HOLDERS)
        return [(str(i), e) for i, e in enumerate(ecc)] if len(columns) == 2 else list(CARDS)

    return query


def xid(number: int, pid: int = 4242) -> str:
    return f"[12.3] NVRM: Xid (PCI:0000:3b:00): {number}, pid={pid}, name=python, Ch 00000008"


def ports(folder: Path, *states: str) -> Path:
    for number, state in enumerate(states):
        port = folder / f"mlx5_{number}" / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
    return folder


def check(tmp_path: Path, *, query=None, lines=(), states=("4: ACTIVE",)) -> health.HealthReport:
    return health.self_health_check(
        4242, query=query or smi(), kernel_log=lambda: lines, infiniband=ports(tmp_path, *states)
    )


@pytest.mark.parametrize(
    ("options", "bad", "detail"),
    [
        pytest.param({}, [], "2 GPUs without uncorrected errors", id="all well"),
        pytest.param({"query": smi(["0", "3"])}, ["gpu ecc"], "GPU 1: 3 uncorrected", id="ecc"),
        pytest.param({"lines": [xid(79)]}, ["xid"], "Xid 79 on PCI:0000:3b:00", id="fallen off"),
        pytest.param({"lines": [xid(31)]}, [], "caused by the program: Xid 31", id="own fault"),
        pytest.param({"lines": [xid(31, 9)]}, [], "no Xid of hardware", id="other's fault"),
        pytest.param(
            {"states": ["4: ACTIVE", "1: DOWN"]}, ["infiniband"], "mlx5_1/1 is 1: DOWN", id="ib"
        ),
    ],
)
def test_report(tmp_path, options, bad, detail):
    report = check(tmp_path, **options)
    assert [c.name for c in report.checks if c.status is Status.FAILED] == bad
    assert report.healthy is not bool(bad)
    assert detail in str(report)


@pytest.mark.parametrize(
    ("options", "name", "detail"),
    [
        pytest.param({"query": lambda *_: None}, "gpu ecc", "no NVIDIA GPU", id="no driver"),
        pytest.param({"query": smi(["[N/A]"])}, "gpu ecc", "ECC is off on 1 GPUs", id="no ecc"),
        pytest.param({"lines": None}, "xid", "may not be read", id="no right"),
        pytest.param({"states": []}, "infiniband", "no InfiniBand port", id="no ib"),
    ],
)
def test_what_cannot_be_checked_is_said(tmp_path, options, name, detail):
    (found,) = [c for c in check(tmp_path, **options).checks if c.name == name]
    assert found.status is Status.NOT_AVAILABLE
    assert detail in found.detail


def test_this_machine_gets_a_report():
    report = health.self_health_check()
    assert {c.name for c in report.checks} == {"gpu ecc", "xid", "infiniband"}
    assert json.loads(json.dumps(report.as_dict()))["healthy"] is report.healthy


@pytest.mark.parametrize(("pid", "held"), [(4242, ["4242"]), (None, ["4242", "7"]), (1, [])])
def test_print_gpu_info(capsys, pid, held):
    gpu.print_gpu_info(pid, query=smi())
    lines = capsys.readouterr().out.splitlines()
    assert "GPU 0 H100: 97 % busy, 4000 of 81559 MiB" in lines
    assert [line.split()[1].rstrip(":") for line in lines if "process" in line] == held


def test_print_gpu_info_without_gpus(capsys):
    gpu.print_gpu_info(1, query=lambda table, columns: None)
    assert capsys.readouterr().out == "no NVIDIA GPU is visible here\n"


def fake_smi(folder: Path, body: str, monkeypatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_nvidia_smi_is_asked_for_plain_cells(tmp_path, monkeypatch):
    fake_smi(tmp_path, 'test "$1" = --query-gpu=index,name && echo "0, NVIDIA H100"', monkeypatch)
    assert gpu.query("gpu", ["index", "name"]) == [("0", "NVIDIA H100")]


def test_a_failing_nvidia_smi_is_no_answer(tmp_path, monkeypatch):
    fake_smi(tmp_path, "exit 9", monkeypatch)
    assert gpu.query("gpu", ["index"]) is None


class TestHook:
    @pytest.fixture(autouse=True)
    def _unbind(self, monkeypatch):
        base = multiprocessing.process.BaseProcess
        monkeypatch.setattr(base, "start", base.start)  # restored afterwards

    @pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
    @pytest.mark.parametrize("method", ["fork", "spawn"])
    @pytest.mark.parametrize(
        ("target", "argument", "code"), [(int, "7", 0), (int, "x", 1), (exit, 3, 3)]
    )
    def test_workers_end_as_they_would(self, outside, capfd, method, target, argument, code):
        hook.bind_hf_except_hook(multiprocessing.Process)
        hook.bind_hf_except_hook(multiprocessing.Process)  # a second call has no effect
        process = multiprocessing.get_context(method).Process(target=target, args=(argument,))
        process.start()
        process.join(30)
        assert process.exitcode == code
        assert capfd.readouterr().err.count("gpu ecc") == (1 if code else 0)

    def test_a_broken_node_is_reported(self, cluster, tmp_path):
        hook.report(check(tmp_path, lines=[xid(79)]), "a worker died of X")
        (call,) = cluster.calls
        assert (call["call"], call["healthy"]) == ("report_node", False)
        assert "Xid 79" in call["error"]

    def test_a_sound_node_is_not_reported(self, cluster, tmp_path, capsys):
        hook.report(check(tmp_path), "a worker died of X")
        assert cluster.calls == []
        assert "a worker died of X" in capsys.readouterr().err

    def test_a_refusal_is_said(self, cluster, tmp_path, capsys):
        cluster.refusals["report_node"] = "unknown call"
        hook.report(check(tmp_path, lines=[xid(79)]), "a worker died of X")
        assert "the node could not be reported: unknown call" in capsys.readouterr().err
