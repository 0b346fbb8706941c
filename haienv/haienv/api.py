"""The API for programs and notebooks: `haienv.set_env(…)`, `haienv.get_envs()`."""

from __future__ import annotations

import os
import site
import sys
from dataclasses import dataclass

from haienv.activate.activation import activation
from haienv.errors import Refused
from haienv.names import check_name, parse_reference
from haienv.store.layout import home
from haienv.store.records import minor
from haienv.store.registry import Environment, find, list_all


@dataclass(frozen=True, slots=True)
class Entered:
    """The result of `set_env`. `imported` are modules that were loaded before, perhaps in another version."""

    name: str
    owner: str
    lock_hash: str
    imported: tuple[str, ...]


def set_env(name: str, user: str | None = None) -> Entered:
    """Activate an environment, NAME or NAME[USER], in this process: set its variables, put its packages first.

    The interpreter stays. Raises Refused if its minor version differs from that of the environment.
    """
    here = home()
    found = find(here, parse_reference(name, user))
    layer = found.usable
    if minor(sys.version.split()[0]) != layer.minor:
        raise Refused(
            f"{found} is for Python {layer.minor}, this is {minor(sys.version.split()[0])}",
            f"start the program with `haienv run '{found}' -- python …`",
        )
    entered = activation(here, found)
    for key, value in entered.applied(os.environ).items():
        os.environ[key] = value
    os.environ.pop("PYTHONHOME", None)
    _put_first([*entered.search, *map(str, found.sites)])
    return Entered(found.name, found.owner, layer.lock_hash, _imported(found))


def get_envs(user: str | None = None) -> list[tuple[str, str, str, str, str, str]]:
    """Environments as rows in the format of HAI: (user, name, path, extend, extend_env, py)."""
    return [
        (
            each.owner,
            each.name,
            str(each.path),
            str(bool(each.layer and (each.layer.parents or each.layer.sites))),
            str(each.layer.parents[0].name) if each.layer and each.layer.parents else "",
            each.layer.python if each.layer else "",
        )
        for each in environments(user)
        if each.ready
    ]


def environments(user: str | None = None) -> list[Environment]:
    """Environments as objects, including broken ones."""
    here = home()
    return list(list_all(here, check_name(user, "user") if user else ""))


def _put_first(directories: list[str]) -> None:
    """Put directories before other packages and after the standard library, and process their .pth files."""
    before = list(sys.path)
    sys.path[:] = [each for each in before if "site-packages" not in each]
    for each in directories:
        site.addsitedir(each)
    sys.path += [each for each in before if each not in sys.path]


def _imported(found: Environment) -> tuple[str, ...]:
    """Loaded modules that the environment also contains."""
    loaded = {name.partition(".")[0] for name in sys.modules}
    provided = {
        path.name.partition(".")[0] for site_dir in found.sites[:1] for path in site_dir.glob("*")
    }
    return tuple(sorted(name for name in loaded & provided if not name.startswith("_")))
