"""What runs on this machine: its platform, C library and CUDA, recorded with each layer that is built here."""

from __future__ import annotations

import os
import re
import sysconfig

from haienv.errors import Refused, UsageError
from haienv.store.records import Layer


def cuda_driver(library: str = "libcuda.so.1") -> str:
    """The newest CUDA that the driver serves, as in 12.4; empty: there is no driver."""
    from ctypes import CDLL, byref, c_int

    number = c_int()
    try:
        if CDLL(library).cuDriverGetVersion(byref(number)):
            return ""
    except (OSError, AttributeError):
        return ""
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def require_cuda(required: str, available: str) -> None:
    """Refused where the driver serves no such CUDA: `wanted` is as in >=12.4."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        fits = bool(available) and available in SpecifierSet(required)
    except InvalidSpecifier as error:
        raise UsageError(f"{required!r} is no range of versions", "as in '>=12.4,<13'") from error
    if not fits:
        has = f"its driver serves CUDA {available}" if available else "it has no driver"
        raise Refused(f"CUDA {required} is required, and this machine has not: {has}")


def libc() -> str:
    """The C library of this machine, as in glibc 2.36."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def require_runnable(layer: Layer) -> None:
    """Refused where files of a layer, made elsewhere, cannot run."""
    if layer.platform != sysconfig.get_platform():
        raise Refused(f"it is for {layer.platform}, this is {sysconfig.get_platform()}",
                      "make it from its lock instead: haienv create NAME --from LOCK")  # fmt: skip
    if layer.libc and libc() and _number(layer.libc) > _number(libc()):
        raise Refused(f"it was made with {layer.libc}, this has {libc()}", "make it from its lock")


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]{1,9}", version)))
