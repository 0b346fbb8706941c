"""Compiles the modules of a layer for users who cannot write bytecode there, and finds truncated bytecode.

Python before 3.13 does not notice that a full disk cut a write short. Nobody can import such a module until its
bytecode is deleted.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from haienv.store.transaction import world_readable

_FIND_TRUNCATED = """
import marshal, os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        if folder.endswith("__pycache__") and name.endswith(sys.implementation.cache_tag + ".pyc"):
            path = os.path.join(folder, name)
            try:
                with open(path, "rb") as file:
                    marshal.loads(file.read()[16:])
            except (EOFError, ValueError, TypeError):
                print(path)
            except OSError:
                pass
"""


def compile_modules(python: Path, site: Path) -> None:
    """Compile all modules, readable by all users. Files that do not compile are skipped."""
    with world_readable():
        command = [str(python), "-I", "-m", "compileall", "-q", "-j", "0", str(site)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    for path in find_truncated_bytecode(python, site):
        path.unlink(missing_ok=True)


def find_truncated_bytecode(python: Path, site: Path) -> list[Path]:
    """Return the bytecode files of a Python's version that this Python cannot load."""
    command = [str(python), "-I", "-S", "-c", _FIND_TRUNCATED, str(site)]
    result = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="surrogateescape"
    )
    return [Path(line) for line in result.stdout.splitlines()]
