"""Requirements on CUDA, and the version of the driver."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from haienv.errors import Refused, UsageError
from haienv.layers.machine import find_cuda_version, require_cuda


@pytest.mark.parametrize(
    ("required", "available", "error"),
    [
        pytest.param(">=12.4", "12.4", None, id="fits"),
        pytest.param(">=12,<13", "12.8", None, id="a range"),
        pytest.param(">=12.4", "11.8", Refused, id="an older driver"),
        pytest.param(">=9.2", "", Refused, id="no driver"),
        pytest.param("twelve", "12.4", UsageError, id="no range"),
    ],
)
def test_required_cuda_ranges(required: str, available: str, error: type[Exception] | None) -> None:
    if error is None:
        require_cuda(required, available)
        return
    with pytest.raises(error):
        require_cuda(required, available)


def test_the_driver_version_is_read(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    source, library = tmp_path / "cuda.c", tmp_path / "libcuda.so"
    source.write_text("int cuDriverGetVersion(int *v) { *v = 12040; return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    assert find_cuda_version(str(library)) == "12.4"
    assert find_cuda_version("libnothing-of-the-kind.so.1") == ""


def test_an_unsupported_range_creates_nothing(haienv: Any) -> None:
    done = haienv("create one --no_extend --require-cuda '>=99'")
    assert done.code == 1
    assert "CUDA >=99 is required" in done.err
    assert not haienv.home.user_dir.exists()
