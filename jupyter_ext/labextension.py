"""Builds the front end from npm once for each state of its sources, for `scripts/setup dev` and for wheels.

    python jupyter_ext/labextension.py    build it if its sources have changed, and link it into this JupyterLab

The build needs node (20.19 or newer) and `jupyter_builder`, which contains yarn. Users need neither: wheels and sdists
contain the built front end.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILT = HERE / "hai_jupyter" / "labextension"
CONFIG = HERE / "jupyter-config" / "hai_jupyter.json"
WITHOUT_VARIABLE = "HAI_WITHOUT_LABEXTENSION"

_STAMP = "built-from.txt"
_FILES = ("package.json", "yarn.lock", ".yarnrc.yml", "tsconfig.json", "install.json")
_FOLDERS = ("src", "style", "schema")
_LAB_PATH = "share/jupyter/labextensions/hai-jupyter"
_ENABLED_PATH = "etc/jupyter/jupyter_server_config.d/hai_jupyter.json"


def shared_data(*, editable: bool) -> dict[str, str]:
    """Return the files that an installation puts beside the packages. Raises RuntimeError if a wheel would lack the
    front end.
    """
    files = {str(CONFIG): _ENABLED_PATH}
    if not editable and WITHOUT_VARIABLE not in os.environ:
        build()
    if is_built():
        files[str(BUILT)] = _LAB_PATH
    return files


def build() -> None:
    """Build the front end unless it is up to date. Raises RuntimeError that says what is missing."""
    if is_built() and not is_stale():
        return
    if shutil.which("node") is None:
        raise RuntimeError(
            "the JupyterLab extension is not built, and building it needs node 20.19 or newer (Debian: nodejs);"
            f" set {WITHOUT_VARIABLE}=1 for a wheel without it, which must not be released"
        )
    for command in _commands():
        result = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            output = (result.stdout + result.stderr)[-4000:]
            raise RuntimeError(f"{' '.join(command[-3:])} failed:\n{output}")
    (BUILT / _STAMP).write_text(_digest())


def is_built() -> bool:
    """Return whether there is a built front end."""
    return (BUILT / "package.json").exists()


def is_stale() -> bool:
    """Return whether the front end was built from other sources."""
    stamp = BUILT / _STAMP
    return not stamp.exists() or stamp.read_text() != _digest()


def link() -> None:
    """Link the checkout into the JupyterLab of this Python, so that a new build needs no new installation."""
    for source, path in ((BUILT, _LAB_PATH), (CONFIG, _ENABLED_PATH)):
        target = Path(sys.prefix) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)  # the copy of an installation
        target.unlink(missing_ok=True)
        target.symlink_to(source)


def _commands() -> list[list[str]]:
    """Return the commands of the build: yarn and the builder are Python packages, yarn installs typescript."""
    jlpm = [sys.executable, "-c", "from jupyter_builder.jlpm import main; main()"]
    builder = [sys.executable, "-c", "from jupyter_builder.main import main; main()"]
    return [
        [*jlpm, "install", "--immutable"],
        [*jlpm, "run", "-T", "tsc"],
        [*builder, "build", "."],
    ]


def _digest() -> str:
    digest = hashlib.sha256()
    folders = [path for name in _FOLDERS for path in (HERE / name).rglob("*") if path.is_file()]
    for path in sorted([*(HERE / name for name in _FILES), *folders]):
        digest.update(f"{path.relative_to(HERE).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def main() -> int:
    """Build and link the front end. Return 0 also if the build fails: only the panel needs it."""
    try:
        build()
    except RuntimeError as error:
        print(f"no JupyterLab panel: {error}", file=sys.stderr)
        return 0
    link()
    return 0


if __name__ == "__main__":
    sys.exit(main())
