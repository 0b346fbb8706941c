"""Faults that prevent the execution of a script, in sentences for users."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hai.host.script_check import script_fault

BOM = "\ufeff"
FAULTS = [
    ("#!/bin/bash\r\necho hi\r\n", "", "DOS line ends"),
    ("#!/usr/bin/env python3\r\nprint()\r\n", "", "DOS line ends"),
    ("#!/bin/bash\r\necho hi\r\n", "bash", "DOS line ends"),
    ("if true\r\nthen echo hi\r\nfi\r\n", "bash", "DOS line ends"),
    (BOM + "#!/bin/bash\r\necho hi\r\n", "sh", "DOS line ends"),
    (BOM + "#!/bin/sh\necho hi\n", "", "a byte order mark"),
    (BOM + "#!/bin/sh\necho hi\n", "bash", "a byte order mark"),
    ("#!/no/such/python -u\n", "", "run by /no/such/python -u, which is not here"),
    ("#!\n", "", "run by nothing"),
    ("#!/usr/bin/env no-such-python\n", "", "run by no-such-python, which is not in PATH"),
]
NONE = [
    ("#!/bin/bash\necho hi\n", ""),
    ("#!/bin/sh\necho 'a\r\nb'\n", ""),
    ("#!/usr/bin/env -S sh -e\n", ""),
    ("#!/usr/bin/env sh\n", ""),
    ("#! /bin/sh\n", ""),
    ("echo hi\n", "bash"),
    ("print(1)\r\n", "python"),
    (BOM + "#!/usr/bin/python9\r\nprint(1)\r\n", "python3"),
    ("\x7fELF\r\n", ""),
    ("", ""),
]


@pytest.mark.parametrize(("text", "interpreter", "why"), FAULTS)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, interpreter: str, why: str) -> None:
    path = tmp_path / "job.sh"
    path.write_text(text, "utf-8", newline="")
    fault = script_fault(path, interpreter)
    assert why in fault
    assert str(path) in fault


@pytest.mark.parametrize(("text", "interpreter"), NONE)
def test_what_runs_is_not_refused(tmp_path: Path, text: str, interpreter: str) -> None:
    path = tmp_path / "job.sh"
    path.write_text(text, "utf-8", newline="")
    assert script_fault(path, interpreter) == ""


def test_the_conversion_that_is_named_works(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/sh\r\necho hi\r\n", newline="")
    path.chmod(0o755)
    command = script_fault(path).partition("convert it: ")[2]
    subprocess.run(["sh", "-c", command], check=True)
    assert script_fault(path) == ""
    assert subprocess.check_output([path]) == b"hi\n"


def test_a_file_that_is_not_there_is_for_others_to_tell(tmp_path: Path) -> None:
    assert script_fault(tmp_path / "gone") == ""
