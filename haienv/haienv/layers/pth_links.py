"""Makes packages and programs of parents available in a layer: packages through a .pth file, programs as copies.

`PYTHONPATH` would put parents before the child, and would reach every other program; --system-site-packages allows one
parent only. So the child's site-packages gets a .pth file that sorts last and adds each parent's directory with
`site.addsitedir`, which also processes the .pth files of the parent. Paths are relative to the root, which may be
mounted elsewhere. Each child lists all its parents, so the .pth file of a parent finds the module already loaded and
does nothing.

A parent's console script would run the parent's Python, which does not see the child. So the child gets a copy whose
first line finds the Python in the same directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from configparser import ConfigParser, Error
from pathlib import Path

from haienv.layers.installed import list_dist_infos
from haienv.store.untrusted_io import (
    LOCK_LIMIT_BYTES,
    Unreadable,
    list_entries,
    read_bytes,
    read_text,
)

_PTH = "zzz_haienv.pth"
_MODULE = "_haienv_layers"
HAIENV_FILES = (f"{_MODULE}.py", _PTH, "pip", "pip3")
"""Names of files that haienv adds to those of the packages."""
_CODE = '''"""Made by haienv: the packages of parents, after those of this layer."""
import os
import site

BELOW = {below!a}
OUTSIDE = {outside!a}
here = os.path.dirname(os.path.realpath(__file__))
root = os.path.normpath(os.path.join(here, *[os.pardir] * 6))
for each in [os.path.join(root, *parts) for parts in BELOW] + OUTSIDE:
    site.addsitedir(each)
'''
# sh runs the second line; for Python, it begins a string that the third line ends.
_STUB = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/'python' "$0" "$@"
' '''
"""
_STUB_LINE = re.compile(rb"#!/bin/sh\n'''exec' .*\n' '''\n")
_PYTHON_LINE = re.compile(rb"#!.*python[0-9.]*[^\n]*\n")
_NOT_PROGRAMS = re.compile(r"python[\d.]*|pip[\d.]*")
_PROGRAM = """import sys
from {module} import {first}

sys.exit({call}())
"""
_PIP = """#!/bin/sh
# Packages of this environment are changed as a whole, by haienv; pip would write into an immutable layer.
exec haienv pip "$@"
"""


def link_parents(
    site: Path, parents: Sequence[tuple[str, ...]], external_sites: Sequence[str]
) -> None:
    """Add the packages of parents and of an external Python to a layer.

    `parents` are path components below the root, nearest parent first; `external_sites` are absolute paths.
    """
    if parents or external_sites:
        below = [list(parts) for parts in parents]
        code = _CODE.format(below=below, outside=list(external_sites))
        (site / f"{_MODULE}.py").write_text(code)
        (site / _PTH).write_text(f"import {_MODULE}\n")


def copy_layer_programs(parent_bin: Path, child_bin: Path) -> None:
    """Copy the Python programs of the nearest parent, which already include those of its parents."""
    for entry in list_entries(parent_bin):
        target = child_bin / entry.name
        if _NOT_PROGRAMS.fullmatch(entry.name) or target.exists():
            continue
        if body := _read_python_body(Path(entry.path)):
            _write_program(target, body)


def write_console_scripts(sites: Iterable[Path], child_bin: Path) -> None:
    """Write the console scripts of a Python outside haienv into the directory of programs."""
    for site in sites:
        for _, _, info in list_dist_infos(site):
            for name, body in _generate_console_scripts(info):
                target = child_bin / name
                if not _NOT_PROGRAMS.fullmatch(name) and not target.exists():
                    _write_program(target, body)


def write_pip_shim(child_bin: Path) -> None:
    """Make `pip` in an active environment run `haienv pip`."""
    for name in HAIENV_FILES[2:]:
        (child_bin / name).unlink(missing_ok=True)
        (child_bin / name).write_text(_PIP)
        (child_bin / name).chmod(0o755)


def _write_program(target: Path, body: bytes) -> None:
    target.write_bytes(_STUB + body)
    target.chmod(0o755)


def _read_python_body(path: Path) -> bytes:
    """Return the code of a Python script after its first lines; empty if the file is not a Python script."""
    try:
        text = read_bytes(path)
    except Unreadable:
        return b""
    head = _STUB_LINE.match(text) or _PYTHON_LINE.match(text)
    return text[head.end() :] if head else b""


def _generate_console_scripts(info: Path) -> Iterable[tuple[str, bytes]]:
    """Yield name and code of each console script of a distribution."""
    try:
        parsed = ConfigParser(delimiters=("=",), interpolation=None)
        parsed.optionxform = str  # type: ignore[method-assign,assignment]  # names keep their case
        parsed.read_string(read_text(info / "entry_points.txt", LOCK_LIMIT_BYTES))
    except (Unreadable, Error):
        return
    if parsed.has_section("console_scripts"):
        for name, target in parsed.items("console_scripts"):
            module, _, call = target.split("[")[0].strip().partition(":")
            if re.fullmatch(r"[A-Za-z0-9._-]+", name) and _is_importable(module, call):
                text = _PROGRAM.format(module=module, first=call.split(".")[0], call=call)
                yield name, text.encode()


def _is_importable(module: str, call: str) -> bool:
    parts = [*module.split("."), *call.split(".")]
    return all(part.isidentifier() for part in parts)
