"""Where things lie: paths below the root, by user, name and layer. Touches no file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from haienv.errors import UsageError
from haienv.names import check_name

LAYERS_DIR, BUILDING_DIR, TRASH_DIR, CACHE_DIR, LEASE_FILE = (
    ".layers",
    ".building",
    ".trash",
    ".cache",
    ".lock",
)
CONDA_DIR, DEPENDENCIES_DIR = ".conda", ".uses"
METADATA_FILE, CURRENT_LINK, LAYER_FILE, LOCK_FILE = "env.toml", "current", "layer.toml", "lock.txt"
LAST_USED_FILE = "used"
"""In a layer that an environment has or had; its time is when that was last known."""
IMAGE_FILE, IMAGE_METADATA_FILE = "image.tar.zst", "image.toml"
"""In a layer that was packed for nodes: the image, and what says that it is whole."""
DESCRIPTION_FILES = (
    IMAGE_FILE,
    IMAGE_METADATA_FILE,
    LAST_USED_FILE,
    LAYER_FILE,
    LOCK_FILE,
    "CACHEDIR.TAG",
)
"""Files that tell of a layer; the rest is what it is."""


@dataclass(frozen=True, slots=True)
class Home:
    """The root of all users' environments, and who is asking. `others` are roots where one only looks and enters."""

    root: Path
    user: str
    other_roots: tuple[Path, ...] = ()

    def roots(self) -> Iterator[Home]:
        """This root, then the others, by themselves."""
        for root in (self.root, *self.other_roots):
            yield Home(root, self.user)

    def at(self, root: Path) -> Home:
        """The same caller, where an environment lies that was found."""
        return self if root == self.root else Home(root, self.user)

    @property
    def user_dir(self) -> Path:
        """The caller's directory."""
        return self.root / self.user

    def directory(self, owner: str, name: str) -> Path:
        """Where an environment's label lies."""
        return self.root / owner / name

    def layer(self, owner: str, layer: str) -> Path:
        """Where a layer lies."""
        return self.root / owner / LAYERS_DIR / layer


def home(environ: Mapping[str, str] = os.environ) -> Home:
    """$HAIENV_HOME and $HAIENV_USER, or this account's own; $HAIENV_PATH names other roots."""
    chosen = environ.get("HAIENV_HOME")
    root = _checked(Path(chosen).absolute() if chosen else _default_root(environ))
    named = filter(None, environ.get("HAIENV_PATH", "").split(":"))
    other_roots = dict.fromkeys(_checked(Path(each).absolute()) for each in named)
    other_roots.pop(root, None)
    return Home(
        root, check_name(environ.get("HAIENV_USER") or _account(), "user"), tuple(other_roots)
    )


def _checked(root: Path) -> Path:
    if ":" in str(root) or not str(root).isprintable():
        raise UsageError(
            f"environments cannot lie in {str(root)!r}: PATH could not name it",
            "HAIENV_HOME is one directory, without colons",
        )
    return root


def _default_root(environ: Mapping[str, str]) -> Path:
    data = environ.get("XDG_DATA_HOME") or "~/.local/share"
    try:
        return Path(data).expanduser() / "haienv"
    except RuntimeError as error:  # a number without an account, as in containers
        raise UsageError("this account has no home directory", "set HAIENV_HOME") from error


def _account() -> str:
    """The account's name; containers may run as a number that has none."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def site_packages(layer: Path, minor: str) -> Path:
    """Where a layer's packages lie."""
    return layer / "lib" / f"python{minor}" / "site-packages"
