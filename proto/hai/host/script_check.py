"""Why a script cannot run as it is: line ends of DOS, a byte order mark, an interpreter that is not there.

The kernel and shells say "No such file or directory" of a file that everybody sees. Asked before a program is run or
sent, and by the agent before it starts one.
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
    """A sentence that names the file, what is wrong and what to do; empty: nothing is.

    `interpreter` is the program that reads it; empty: the one that its first line names.
    """
    try:
        with path.open("rb") as file:
            first = file.read(_FIRST_BYTES).split(b"\n", 1)
    except OSError:
        return ""  # whoever runs it says so
    line, ends = first[0], len(first) > 1
    shell = Path(interpreter).name in ("bash", "sh")
    if interpreter and not shell:
        return ""  # Python reads all of them
    named = line.removeprefix(BOM_UTF8).startswith(b"#!")
    if ends and line.endswith(b"\r") and (shell or named):
        return (
            f"{path} has DOS line ends, which {interpreter or 'the system'} takes for letters of "
            f"its words; convert it: sed -i 's/\\r$//' {quote(str(path))}"
        )
    if named and line.startswith(BOM_UTF8):
        return f"{path} begins with a byte order mark, so its first line is none; save it without"
    if interpreter or not named:
        return ""
    return _missing(path, os.fsdecode(line[2:].strip()), search_path)


def _missing(path: Path, told: str, search_path: str | None) -> str:
    """The interpreter, or the program that `env` looks for, is not there."""
    words = told.split()
    if not words or not os.access(words[0], os.X_OK):
        return f"{path} shall be run by {told or 'nothing'}, which is not here: see its first line"
    plain = words[0] == _ENV and len(words) > 1 and not words[1].startswith("-") and "=" not in told
    if plain and shutil.which(words[1], path=search_path) is None:
        return f"{path} shall be run by {words[1]}, which is not in PATH: see its first line"
    return ""
