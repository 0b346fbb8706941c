"""What this machine can run: platform, C library and CUDA, which are recorded with each layer that is built here."""

from __future__ import annotations

import os
import re
import sysconfig

from haienv.errors import Refused, UsageError
from haienv.store.records import Layer


def cuda_driver(library: str = "libcuda.so.1") -> str:
    """The newest CUDA version that the driver supports, as in 12.4; empty if there is no driver."""
    from ctypes import CDLL, byref, c_int

    number = c_int()
    try:
        if CDLL(library).cuDriverGetVersion(byref(number)):
            return ""
    except (OSError, AttributeError):
        return ""
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def require_cuda(required: str, available: str) -> None:
    """Raises Refused if the driver does not support a range of CUDA versions, such as >=12.4."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        fits = bool(available) and available in SpecifierSet(required)
    except InvalidSpecifier as error:
        raise UsageError(
            f"{required!r} is not a range of versions", "as in '>=12.4,<13'"
        ) from error
    if not fits:
        reason = f"its driver supports CUDA {available}" if available else "it has no driver"
        raise Refused(f"CUDA {required} is required, but this machine cannot run it: {reason}")


def libc() -> str:
    """The C library of this machine, as in glibc 2.36."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def require_runnable(layer: Layer) -> None:
    """Raises Refused if a layer that was built on another machine cannot run here."""
    if layer.platform != sysconfig.get_platform():
        raise Refused(f"the archive is for {layer.platform}, this machine is {sysconfig.get_platform()}",
                      "build it from its lock instead: haienv create NAME --from LOCK")  # fmt: skip
    if layer.libc and libc() and _number(layer.libc) > _number(libc()):
        raise Refused(
            f"the archive needs {layer.libc}, this machine has {libc()}", "build it from its lock"
        )


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]{1,9}", version)))
