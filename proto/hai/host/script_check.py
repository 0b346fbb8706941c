"""Finds faults that prevent the execution of a script: DOS line ends, a byte order mark, or a missing interpreter.

The kernel and shells report "No such file or directory" for such a file, although it exists. Clients check it before
they run or send a program, and the agent before it starts one.
"""

from __future__ import annotations

import os
import shutil
from codecs import BOM_UTF8
from pathlib import Path
from shlex import quote

_FIRST_BYTES = 4096
_ENV = "/usr/bin/env"


def script_fault(path: Path, interpreter: str = "", search_path: str | None = None) -> str:
    """Return a sentence with the file, its fault and what to do; empty if no fault is found.

    `interpreter` is the program that reads the script; empty means the program in its first line.
    """
    try:
        with path.open("rb") as file:
            first = file.read(_FIRST_BYTES).split(b"\n", 1)
    except OSError:
        return ""  # the start of the program will report this error
    line, ends = first[0], len(first) > 1
    shell = Path(interpreter).name in ("bash", "sh")
    if interpreter and not shell:
        return ""  # Python accepts all these faults
    has_shebang = line.removeprefix(BOM_UTF8).startswith(b"#!")
    if ends and line.endswith(b"\r") and (shell or has_shebang):
        return (
            f"{path} has DOS line ends, which {interpreter or 'the system'} takes for letters of "
            f"its words; convert it: sed -i 's/\\r$//' {quote(str(path))}"
        )
    if has_shebang and line.startswith(BOM_UTF8):
        return f"{path} begins with a byte order mark, so its first line is none; save it without"
    if interpreter or not has_shebang:
        return ""
    return _missing(path, os.fsdecode(line[2:].strip()), search_path)


def _missing(path: Path, command: str, search_path: str | None) -> str:
    """Return a sentence if the interpreter, or the program that `env` starts, does not exist; else empty."""
    arguments = command.split()
    if not arguments or not os.access(arguments[0], os.X_OK):
        return (
            f"{path} shall be run by {command or 'nothing'}, which is not here: see its first line"
        )
    plain = (
        arguments[0] == _ENV
        and len(arguments) > 1
        and not arguments[1].startswith("-")
        and "=" not in command
    )
    if plain and shutil.which(arguments[1], path=search_path) is None:
        return f"{path} shall be run by {arguments[1]}, which is not in PATH: see its first line"
    return ""
