"""env.toml and layer.toml as values: every key by its type, every list and text bounded, nothing unknown trusted.

Keys that only haienv needs are checked, so that both call the same records broken; those that nobody knows are passed
over. A newer schema is not guessed at.
"""

from __future__ import annotations

import datetime
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from hai.toml import loads
from hai_backend.domain.catalog.dataset import Visibility
from hai_backend.domain.environment import LAYER, LOCK_HASH, NAME, EnvironmentName
from hai_backend.environments.errors import Broken

Kind = TypeVar("Kind")

SCHEMA = 1
_MOST_TEXT = 4096
_MOST_ITEMS = 10_000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("PATH", "PYTHONPATH", "PYTHONHOME", "PS1", "VIRTUAL_ENV")  # of activation itself
_PATH = re.compile(r"/.*")
_LAYER_OR_NONE = re.compile(rf"(?:{LAYER.pattern})?")
_PYTHON = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){1,2}[A-Za-z0-9.+-]{0,16}")


@dataclass(frozen=True, slots=True)
class Config:
    """What belongs to an environment beside its packages."""

    search_dirs: tuple[str, ...] = ()
    bin_dirs: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Label:
    """env.toml: whose eyes, and configuration."""

    visibility: Visibility
    user_group: str
    description: str
    deprecated: str
    created_at: float
    updated_at: float
    config: Config


@dataclass(frozen=True, slots=True)
class Parent:
    """One of the chain that a layer extends, nearest first."""

    called: EnvironmentName
    layer: str
    lock_hash: str


@dataclass(frozen=True, slots=True)
class Layer:
    """layer.toml: what a layer is."""

    lock_hash: str
    python_version: str
    platform: str  # as in linux-x86_64; empty: not said
    wanted: tuple[str, ...]
    packages: int
    size_bytes: int
    sites: tuple[str, ...]  # of a Python outside haienv
    parents: tuple[Parent, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """image.toml: what the packed form of a layer is."""

    sha256: str
    unpacked_bytes: int
    files: int


def label(text: str) -> Label:
    """Raises Broken."""
    table = _table(text, "env.toml")
    _texts(table, "tags")
    _matching(table, "previous", _LAYER_OR_NONE)
    return Label(
        visibility=_visibility(_text(table, "visibility", "private")),
        user_group=_text(table, "group", ""),
        description=_text(table, "description", ""),
        deprecated=_text(table, "deprecated", ""),
        created_at=_moment(table, "created"),
        updated_at=_moment(table, "updated"),
        config=_config(_get(table, "config", dict, {})),
    )


def config(text: str) -> Config:
    """Of a table [config] alone. Raises Broken."""
    return _config(_parsed(text, "it"))


def _config(table: Mapping[str, Any]) -> Config:
    _check_hooks(table)
    return Config(
        search_dirs=_directories(table, "search_dirs"),
        bin_dirs=_directories(table, "bin_dirs"),
        variables=_variables(_get(table, "variables", dict, {})),
    )


def layer(text: str) -> Layer:
    """Raises Broken."""
    table = _table(text, "layer.toml")
    parents = _get(table, "parents", list, [])
    _bounded("parents", parents)
    made = Layer(
        lock_hash=_matching(table, "lock_hash", LOCK_HASH),
        python_version=_matching(table, "python", _PYTHON),
        platform=_text(table, "platform", ""),
        wanted=_texts(table, "wanted"),
        packages=_count(table, "packages"),
        size_bytes=_count(table, "size_bytes"),
        sites=_directories(table, "sites"),
        parents=tuple(map(_parent, parents)),
    )
    _check_unused(table)
    return made


def _check_unused(table: Mapping[str, Any]) -> None:
    """What only haienv needs of a layer."""
    _matching(table, "interpreter", _PATH)
    for key in ("libc", "cuda", "backend"):
        _text(table, key, "")
    _directories(table, "editable")
    _moment(table, "created")


def _table(text: str, file: str) -> dict[str, Any]:
    table = _parsed(text, file)
    schema = table.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise Broken(f"{file} has schema {schema!r:.40}; this server reads {SCHEMA}")
    return table


def _parsed(text: str, file: str) -> dict[str, Any]:
    try:
        return loads(text)
    except ValueError as error:
        raise Broken(f"{file} is not TOML: {str(error)[:200]}") from error


def _get(table: Mapping[str, Any], key: str, kind: type[Kind], default: Kind) -> Kind:
    value = table.get(key, default)
    if type(value) is not kind:
        raise Broken(f"{key} is {value!r:.40}, not {kind.__name__}")
    return value


def _text(table: Mapping[str, Any], key: str, default: str) -> str:
    return _shown(key, _get(table, key, str, default))


def _matching(table: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    value = _text(table, key, "")
    if not pattern.fullmatch(value):
        raise Broken(f"{key} is {value!r:.80}, which it cannot be")
    return value


def _count(table: Mapping[str, Any], key: str) -> int:
    value = _get(table, key, int, 0)
    if not 0 <= value < 1 << 60:
        raise Broken(f"{key} is {value!r:.40}, which it cannot be")
    return value


def _moment(table: Mapping[str, Any], key: str) -> float:
    value = _get(table, key, datetime.datetime, datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
    try:
        return max(0.0, (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).timestamp())
    except (OverflowError, ValueError) as error:
        raise Broken(f"{key} is {value}, which it cannot be") from error


def _visibility(word: str) -> Visibility:
    for each in Visibility:
        if word == each.value.lower():
            return each
    raise Broken(f"visibility is {word!r:.40}, not private, group or public")


def _texts(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _bounded(key, _get(table, key, list, []))
    if not all(type(value) is str for value in values):
        raise Broken(f"{key} has something else than texts")
    return tuple(_shown(key, value) for value in values)


def _directories(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _texts(table, key)
    for value in values:
        if not value.startswith("/") or ":" in value:
            raise Broken(f"{key} has {value!r:.80}, which is no whole path without a colon")
    return values


def _check_hooks(table: Mapping[str, Any]) -> None:
    """Only haienv runs them, which takes one that is no command for a fault of the whole."""
    for hook in _texts(table, "hooks"):
        try:
            fits = bool(shlex.split(hook))
        except ValueError:
            fits = False
        if not fits:
            raise Broken(f"hooks has {hook!r:.80}, which is no command")


def _variables(table: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    for name, value in _bounded("variables", table).items():
        if not _VARIABLE.fullmatch(name) or type(value) is not str:
            raise Broken(f"variable {name!r:.80} is none, or its value is no text")
        if name in _OURS or name.startswith(("HF_ENV_", "_HAIENV_")):
            raise Broken(f"variable {name[:80]} is set by activation itself")
        if any(letter in value for letter in "\0\n\r") or len(value) > 1 << 16:
            raise Broken(f"the value of variable {name[:80]} cannot be one")
    return tuple(table.items())


def image(text: str) -> Image:
    """Raises Broken."""
    table = _table(text, "image.toml")
    _count(table, "size_bytes")
    sizes = _count(table, "unpacked_bytes"), _count(table, "files")
    return Image(_matching(table, "sha256", LOCK_HASH), *sizes)


def _parent(table: object) -> Parent:
    if not isinstance(table, dict):
        raise Broken("parents has something else than tables")
    called = EnvironmentName(_matching(table, "owner", NAME), _matching(table, "name", NAME))
    return Parent(
        called, _matching(table, "layer", LAYER), _matching(table, "lock_hash", LOCK_HASH)
    )


def _shown(key: str, value: str) -> str:
    """A text that people are shown."""
    if not value.isprintable():
        raise Broken(f"{key} has letters that cannot be shown")
    _bounded(key, value)
    return value


def _bounded(key: str, value: Any) -> Any:
    """Texts and collections of a size that people write."""
    most = _MOST_TEXT if isinstance(value, str) else _MOST_ITEMS
    if len(value) > most:
        raise Broken(f"{key} has {len(value)} parts; at most {most} are read")
    return value
