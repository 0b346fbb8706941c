"""Tells what this machine can run: platform, C library and CUDA. Each layer records those of its build machine."""

from __future__ import annotations

import os
import re
import sysconfig

from haienv.errors import Refused, UsageError
from haienv.store.records import Layer


def find_cuda_version(library: str = "libcuda.so.1") -> str:
    """Return the newest CUDA version that the driver supports, as in 12.4; empty if there is no driver."""
    from ctypes import CDLL, byref, c_int

    number = c_int()
    try:
        if CDLL(library).cuDriverGetVersion(byref(number)):
            return ""
    except (OSError, AttributeError):
        return ""
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def require_cuda(required: str, available: str) -> None:
    """Raise Refused unless the version `available` is in a range of CUDA versions, such as >=12.4."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        is_supported = bool(available) and available in SpecifierSet(required)
    except InvalidSpecifier as error:
        raise UsageError(
            f"{required!r} is not a range of versions", "as in '>=12.4,<13'"
        ) from error
    if not is_supported:
        reason = f"its driver supports CUDA {available}" if available else "it has no driver"
        raise Refused(f"CUDA {required} is required, but this machine cannot run it: {reason}")


def read_libc_version() -> str:
    """Return the C library of this machine, as in glibc 2.36."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def require_runnable(layer: Layer) -> None:
    """Raise Refused if a layer that was built on another machine cannot run here."""
    if layer.platform != sysconfig.get_platform():
        raise Refused(f"the archive is for {layer.platform}, this machine is {sysconfig.get_platform()}",
                      "build it from its lock instead: haienv create NAME --from LOCK")  # fmt: skip
    if (
        layer.libc
        and read_libc_version()
        and _version_numbers(layer.libc) > _version_numbers(read_libc_version())
    ):
        raise Refused(
            f"the archive needs {layer.libc}, this machine has {read_libc_version()}",
            "build it from its lock",
        )


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]{1,9}", version)))
