"""Which CUDA the driver of this machine can run: recorded with what is built here, and checked only when asked for."""

from __future__ import annotations

from haienv.errors import Refused, UsageError


def driver(library: str = "libcuda.so.1") -> str:
    """The newest CUDA that the driver serves, as in 12.4; empty: there is no driver."""
    from ctypes import CDLL, byref, c_int

    number = c_int()
    try:
        if CDLL(library).cuDriverGetVersion(byref(number)):
            return ""
    except (OSError, AttributeError):
        return ""
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def require(wanted: str, found: str) -> None:
    """Refused where the driver serves no such CUDA: `wanted` is as in >=12.4."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        fits = bool(found) and found in SpecifierSet(wanted)
    except InvalidSpecifier as error:
        raise UsageError(f"{wanted!r} is no range of versions", "as in '>=12.4,<13'") from error
    if not fits:
        has = f"its driver serves CUDA {found}" if found else "it has no driver"
        raise Refused(f"CUDA {wanted} is required, and this machine has not: {has}")
