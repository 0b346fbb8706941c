"""Build the front end from npm, once for each state of its sources: for `scripts/setup dev`, and for wheels.

    python jupyter_ext/labextension.py    build it if its sources have changed, and show it to this JupyterLab

It needs node (20.19 or newer) and `jupyter_builder`, which brings yarn with it. Users need neither: wheels and sdists
hold what was built.
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
WITHOUT = "HAI_WITHOUT_LABEXTENSION"

_STAMP = "built-from.txt"
_FILES = ("package.json", "yarn.lock", ".yarnrc.yml", "tsconfig.json", "install.json")
_FOLDERS = ("src", "style", "schema")
_LAB = "share/jupyter/labextensions/hai-jupyter"
_ENABLED = "etc/jupyter/jupyter_server_config.d/hai_jupyter.json"


def shared_data(*, editable: bool) -> dict[str, str]:
    """What an installation puts beside the packages. Raises RuntimeError when a wheel would lack the front end."""
    found = {str(CONFIG): _ENABLED}
    if not editable and WITHOUT not in os.environ:
        build()
    if is_built():
        found[str(BUILT)] = _LAB
    return found


def build() -> None:
    """Build unless what is there was built from these sources. Raises RuntimeError that says what is missing."""
    if is_built() and not is_stale():
        return
    if shutil.which("node") is None:
        raise RuntimeError(
            "the JupyterLab extension is not built, and building it needs node 20.19 or newer (Debian: nodejs);"
            f" set {WITHOUT}=1 for a wheel without it, which must not be released"
        )
    for command in _commands():
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(
                f"{' '.join(command[-3:])} failed:\n{(done.stdout + done.stderr)[-4000:]}"
            )
    (BUILT / _STAMP).write_text(_digest())


def is_built() -> bool:
    """Something is there to install."""
    return (BUILT / "package.json").exists()


def is_stale() -> bool:
    """It was built from other sources."""
    stamp = BUILT / _STAMP
    return not stamp.exists() or stamp.read_text() != _digest()


def link() -> None:
    """Let the JupyterLab of this Python see the checkout, so that a new build needs no new installation."""
    for source, place in ((BUILT, _LAB), (CONFIG, _ENABLED)):
        target = Path(sys.prefix) / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)  # an installation's copy
        target.unlink(missing_ok=True)
        target.symlink_to(source)


def _commands() -> list[list[str]]:
    """yarn and the builder come as Python packages; typescript is what yarn has installed."""
    jlpm = [sys.executable, "-c", "from jupyter_builder.jlpm import main; main()"]
    builder = [sys.executable, "-c", "from jupyter_builder.main import main; main()"]
    return [
        [*jlpm, "install", "--immutable"],
        [*jlpm, "run", "-T", "tsc"],
        [*builder, "build", "."],
    ]


def _digest() -> str:
    hashed = hashlib.sha256()
    folders = [path for name in _FOLDERS for path in (HERE / name).rglob("*") if path.is_file()]
    for path in sorted([*(HERE / name for name in _FILES), *folders]):
        hashed.update(f"{path.relative_to(HERE).as_posix()}\n".encode())
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


def main() -> int:
    """0 also when it can not be built: everything but the panel works without."""
    try:
        build()
    except RuntimeError as error:
        print(f"no JupyterLab panel: {error}", file=sys.stderr)
        return 0
    link()
    return 0


if __name__ == "__main__":
    sys.exit(main())
