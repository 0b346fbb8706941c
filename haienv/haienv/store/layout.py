"""Computes paths below the root of environments, by user, name and layer. It accesses no file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from haienv.errors import UsageError
from haienv.names import check_name

# Entries of a user's directory
LAYERS_DIR, BUILDING_DIR, TRASH_DIR, CACHE_DIR = ".layers", ".building", ".trash", ".cache"
CONDA_DIR, DEPENDENCIES_DIR, LEASE_FILE = ".conda", ".uses", ".lock"
# Entries of an environment's directory, then of a layer
METADATA_FILE, CURRENT_LINK = "env.toml", "current"
LAYER_FILE, LOCK_FILE = "layer.toml", "lock.txt"
LAST_USED_FILE = "used"
"""An empty file in each layer that an environment has used. Its modification time is the last known use."""
IMAGE_FILE, IMAGE_METADATA_FILE = "image.tar.zst", "image.toml"
"""The image of a packed layer, and the metadata of the image, which is written last."""
DESCRIPTION_FILES = (
    IMAGE_FILE,
    IMAGE_METADATA_FILE,
    LAST_USED_FILE,
    LAYER_FILE,
    LOCK_FILE,
    "CACHEDIR.TAG",
)
"""Files that describe a layer. They do not belong to its contents."""


@dataclass(frozen=True, slots=True)
class Home:
    """The root of all users' environments, and the calling user; environments of `other_roots` are read-only."""

    root: Path
    user: str
    other_roots: tuple[Path, ...] = ()

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Home:
        """Read $HAIENV_HOME, $HAIENV_USER and $HAIENV_PATH (other roots); the default is a directory of the account."""
        chosen = environ.get("HAIENV_HOME")
        root = _check_root(Path(chosen).absolute() if chosen else _default_root(environ))
        paths = filter(None, environ.get("HAIENV_PATH", "").split(":"))
        other_roots = dict.fromkeys(_check_root(Path(path).absolute()) for path in paths)
        other_roots.pop(root, None)
        user = check_name(environ.get("HAIENV_USER") or _account_name(), "user")
        return cls(root, user, tuple(other_roots))

    def roots(self) -> Iterator[Home]:
        """Return a Home for this root, then one for each other root."""
        for root in (self.root, *self.other_roots):
            yield Home(root, self.user)

    def at(self, root: Path) -> Home:
        """Return the Home of the same user in another root."""
        return self if root == self.root else Home(root, self.user)

    @property
    def user_dir(self) -> Path:
        """The directory of the calling user."""
        return self.root / self.user

    def directory(self, owner: str, name: str) -> Path:
        """Return the directory of an environment, with its metadata and the link to its layer."""
        return self.root / owner / name

    def layer(self, owner: str, layer: str) -> Path:
        return self.root / owner / LAYERS_DIR / layer


def _check_root(root: Path) -> Path:
    if ":" in str(root) or not str(root).isprintable():
        raise UsageError(
            f"{str(root)!r} cannot be the root of environments: PATH cannot contain it",
            "set HAIENV_HOME to one directory, without colons",
        )
    return root


def _default_root(environ: Mapping[str, str]) -> Path:
    data = environ.get("XDG_DATA_HOME") or "~/.local/share"
    try:
        return Path(data).expanduser() / "haienv"
    except RuntimeError as error:  # a uid without an account, as in containers
        raise UsageError("this account has no home directory", "set HAIENV_HOME") from error


def _account_name() -> str:
    """Return the name of the account, or its uid if the account has no name, as in containers."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def site_packages(layer: Path, minor: str) -> Path:
    return layer / "lib" / f"python{minor}" / "site-packages"
