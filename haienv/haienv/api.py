"""Provides the functions for programs and notebooks: `haienv.set_env(…)`, `haienv.get_envs()`."""

from __future__ import annotations

import os
import site
import sys
from dataclasses import dataclass

from haienv.activate.activation import compute_activation
from haienv.errors import Refused
from haienv.names import check_name, parse_reference
from haienv.store.layout import Home
from haienv.store.records import minor_version
from haienv.store.registry import Environment, find_by_reference, list_environments


@dataclass(frozen=True, slots=True)
class ActivatedEnvironment:
    """The result of `set_env`. `imported` are modules that were loaded before, perhaps in another version."""

    name: str
    owner: str
    lock_hash: str
    imported: tuple[str, ...]


def set_env(name: str, user: str | None = None) -> ActivatedEnvironment:
    """Activate an environment, NAME or NAME[USER], in this process: set its variables, and put its packages first.

    The interpreter stays the same. Raise Refused if its minor version is not that of the environment.
    """
    home = Home.from_environ()
    environment = find_by_reference(home, parse_reference(name, user))
    layer = environment.usable_layer
    running = minor_version(sys.version.split()[0])
    if running != layer.minor_version:
        raise Refused(
            f"{environment} is for Python {layer.minor_version}, this is {running}",
            f"start the program with `haienv run '{environment}' -- python …`",
        )
    activation = compute_activation(home, environment)
    for key, value in activation.apply_to(os.environ).items():
        os.environ[key] = value
    os.environ.pop("PYTHONHOME", None)
    _insert_sites([*activation.search, *map(str, environment.sites)])
    return ActivatedEnvironment(
        environment.name, environment.owner, layer.lock_hash, _list_loaded_modules(environment)
    )


def get_envs(user: str | None = None) -> list[tuple[str, str, str, str, str, str]]:
    """Return the usable environments as rows in the format of HAI: (user, name, path, extend, extend_env, py)."""
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
        if each.is_ready
    ]


def environments(user: str | None = None) -> list[Environment]:
    """Return the environments as objects, including broken ones."""
    home = Home.from_environ()
    return list(list_environments(home, check_name(user, "user") if user else ""))


def _insert_sites(directories: list[str]) -> None:
    """Put directories after the standard library and before other packages, and process the .pth files in them."""
    previous = list(sys.path)
    sys.path[:] = [each for each in previous if "site-packages" not in each]
    for each in directories:
        site.addsitedir(each)
    sys.path += [each for each in previous if each not in sys.path]


def _list_loaded_modules(environment: Environment) -> tuple[str, ...]:
    """Return the loaded modules that the environment also contains."""
    loaded = {name.partition(".")[0] for name in sys.modules}
    provided = {
        path.name.partition(".")[0]
        for site_dir in environment.sites[:1]
        for path in site_dir.glob("*")
    }
    return tuple(sorted(name for name in loaded & provided if not name.startswith("_")))
