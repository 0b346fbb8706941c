"""Checks the hardware of this node: ECC counters of GPUs, Xid lines in the kernel log, and InfiniBand links.

A check that is not possible (no GPU, no permission to read the kernel log, no InfiniBand) has the result "not
available", with the reason. It counts neither as healthy nor as broken.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from hai.task import gpu

_INFINIBAND = Path("/sys/class/infiniband")
# Xids that a program cannot cause
_HARDWARE_XIDS = frozenset({48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140})
_XID = re.compile(r"NVRM: Xid \((?P<device>[^)]*)\): (?P<number>\d+)(?:, pid='?(?P<pid>\d+))?")
_ECC = "ecc.errors.uncorrected.volatile.total"
_SECONDS = 20.0


class Status(StrEnum):
    """The result of one check."""

    OK = "ok"
    FAILED = "failed"
    NOT_AVAILABLE = "not available"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its result, and details."""

    name: str
    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The results of self_health_check."""

    pid: int
    checks: tuple[Check, ...]

    @property
    def healthy(self) -> bool:
        """False when a check failed. True says only that nothing bad was found by the checks that could be made."""
        return all(check.status is not Status.FAILED for check in self.checks)

    def as_dict(self) -> dict[str, object]:
        """Return the report as a dictionary for json.dumps."""
        return {"healthy": self.healthy, **asdict(self)}

    def __str__(self) -> str:
        return "; ".join(f"{c.name}: {c.status.value} ({c.detail})" for c in self.checks)


def read_kernel_log() -> list[str] | None:
    """Return the lines of the kernel log; None without the permission to read it."""
    program = shutil.which("dmesg")
    if program is None:
        return None
    try:
        done = subprocess.run([program], capture_output=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").splitlines()


def self_health_check(
    pid: int | None = None,
    *,
    query: gpu.Query = gpu.query,
    kernel_log: Callable[[], Iterable[str] | None] = read_kernel_log,
    infiniband: Path = _INFINIBAND,
) -> HealthReport:
    """Check GPU memory, Xid lines, and InfiniBand links.

    Xid lines of hardware faults count as failures; those of process `pid` (default: this process) are only reported.
    """
    pid = os.getpid() if pid is None else pid
    checks = (_ecc(query), _xid(kernel_log(), pid), _links(infiniband))
    return HealthReport(pid, checks)


def _ecc(query: gpu.Query) -> Check:
    rows = query("gpu", ("index", _ECC))
    if not rows:
        return Check("gpu ecc", Status.NOT_AVAILABLE, "no NVIDIA GPU is visible here")
    counted = {index: count for index, count in rows if count.isdigit()}
    if not counted:
        return Check("gpu ecc", Status.NOT_AVAILABLE, f"ECC is off on {len(rows)} GPUs")
    bad = [f"GPU {index}: {count} uncorrected" for index, count in counted.items() if int(count)]
    if bad:
        return Check("gpu ecc", Status.FAILED, ", ".join(bad))
    return Check("gpu ecc", Status.OK, f"{len(counted)} GPUs without uncorrected errors")


def _xid(lines: Iterable[str] | None, pid: int) -> Check:
    if lines is None:
        return Check("xid", Status.NOT_AVAILABLE, "the kernel log may not be read here")
    found = [match for line in lines if (match := _XID.search(line))]
    bad = [m for m in found if int(m["number"]) in _HARDWARE_XIDS]
    own = [m for m in found if m["pid"] == str(pid) and m not in bad]
    if bad:
        return Check("xid", Status.FAILED, ", ".join(_name(m) for m in bad))
    if own:
        return Check("xid", Status.OK, f"caused by the program: {', '.join(_name(m) for m in own)}")
    return Check("xid", Status.OK, "no Xid of hardware or of this process")


def _name(match: re.Match[str]) -> str:
    return f"Xid {match['number']} on {match['device']}"


def _links(infiniband: Path) -> Check:
    ports = sorted(infiniband.glob("*/ports/*/state"))
    if not ports:
        return Check("infiniband", Status.NOT_AVAILABLE, "no InfiniBand port on this node")
    states = {f"{p.parts[-4]}/{p.parts[-2]}": p.read_text().strip() for p in ports}
    down = [f"{port} is {state}" for port, state in states.items() if not state.endswith("ACTIVE")]
    if down:
        return Check("infiniband", Status.FAILED, ", ".join(down))
    return Check("infiniband", Status.OK, f"{len(states)} ports active")
