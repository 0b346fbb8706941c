"""Makes the agent's directory: a Python, its packages and its C library, for any image with /bin/sh.

    python agent/assemble.py TARGET

Run it with the Python that is to be copied. In the image of a task, the agent uses only /bin/sh, so the image may have
musl, busybox or another glibc: the scripts in bin/ call the dynamic loader and libraries of the directory itself. They
set no environment variable, so programs that the agent starts use the libraries of their image.
"""

from __future__ import annotations

import argparse
import compileall
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode

PYTHON = """#!/bin/sh
here=${{0%/*}}/..
exec "$here/lib/{loader}" --library-path "$here/lib" --argv0 "$here/bin/python3" "$here/lib/python.elf" "$@"
"""

AGENT = """#!/bin/sh
exec "${0%/*}/python3" -I -B -m hai_backend.agent "$@"
"""

DISTRIBUTIONS = (
    "grpcio",
    "protobuf",
    "googleapis-common-protos",
    "typing_extensions",
    "zstandard",
)
"""What agents import beside the standard library and us; a test starts one with nothing else."""

PACKAGES = ("hai", "hai_backend", "hfai")

_NOT_NEEDED = {"..", "__pycache__", "_cffi"}  # _cffi is a second build of zstandard, for PyPy

_UNWANTED = shutil.ignore_patterns(
    *("__pycache__", "test", "tests", "testing", "idlelib", "tkinter", "turtledemo", "ensurepip"),
    *(".*", "lib2to3", "*-packages", "config-*", "_tkinter*", "_test*", "_ctypes_test*", "xx*"),
)
_LINE = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)


def main(argv: list[str]) -> int:
    """Make the directory TARGET. Return 0 if it is complete."""
    parser = argparse.ArgumentParser(description="Make the agent's directory.")
    parser.add_argument("target", type=Path)
    target: Path = parser.parse_args(argv).target.absolute()
    if target.exists():
        parser.error(f"{target} is there already")
    bring_python(target / "lib")
    bring_packages(target / "lib" / _version() / _site_folder())
    write_scripts(target / "bin", bring_libraries(target / "lib"))
    compileall.compile_dir(
        target, quiet=2, stripdir=target, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
    )
    return 0


def bring_python(lib: Path) -> None:
    """Copy the interpreter and its standard library."""
    shutil.copytree(sysconfig.get_path("stdlib"), lib / _version(), ignore=_UNWANTED)
    shutil.copy2(Path(sys.executable).resolve(), lib / "python.elf")


def bring_packages(site: Path) -> None:
    """Copy the installed packages. Our own packages may be a checkout."""
    for name in DISTRIBUTIONS:
        for file in metadata.files(name) or ():
            if not _NOT_NEEDED & {*file.parts, file.name.partition(".")[0]}:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(file.locate()), site / file)
    for name in PACKAGES:
        spec = find_spec(name)
        for place in (spec.submodule_search_locations if spec else None) or ():
            shutil.copytree(place, site / name, ignore=_UNWANTED, dirs_exist_ok=True)


def bring_libraries(lib: Path) -> str:
    """Copy every library that a file in `lib` needs. Return the name of the dynamic loader."""
    needed = {path for file in _programs(lib) for path in _needs(file)}
    for path in needed:
        if not path.is_relative_to(lib):
            shutil.copy2(path.resolve(), lib / path.name)
    (loader,) = {path.name for path in needed if path.name.startswith(("ld-linux", "ld64"))}
    return loader


def write_scripts(folder: Path, loader: str) -> None:
    """Write the commands that are called from outside the directory."""
    folder.mkdir()
    for name, script in (("python3", PYTHON.format(loader=loader)), ("hai-agent", AGENT)):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)


def _programs(lib: Path) -> Iterator[Path]:
    yield lib / "python.elf"
    yield from lib.rglob("*.so")


def _needs(file: Path) -> Iterator[Path]:
    done = subprocess.run(["ldd", file], capture_output=True, text=True, check=True)
    return (Path(found) for found in _LINE.findall(done.stdout))


def _version() -> str:
    return Path(sysconfig.get_path("stdlib")).name


def _site_folder() -> str:
    """Return the name of the package directory of this Python. Debian's own Python uses another one."""
    return "dist-packages" if "deb_system" in sysconfig.get_scheme_names() else "site-packages"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
