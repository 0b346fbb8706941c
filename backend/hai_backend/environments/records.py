"""Parses the records env.toml, layer.toml and image.toml, and checks the type of each key and the size of each value.

Keys that only haienv needs are checked as well, so that haienv and the server report the same files as broken. Unknown
keys are ignored. Records of a newer schema are rejected.
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

Value = TypeVar("Value")

SCHEMA = 1
_MAX_TEXT_CHARS = 4096
_MAX_ITEMS = 10_000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = ("PATH", "PYTHONPATH", "PYTHONHOME", "PS1", "VIRTUAL_ENV")  # set by activation itself
_PATH = re.compile(r"/.*")
_LAYER_OR_NONE = re.compile(rf"(?:{LAYER.pattern})?")
_PYTHON = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){1,2}[A-Za-z0-9.+-]{0,16}")


class BrokenEnvironment(Exception):
    """The files of an environment do not match the layout; the message tells the owner what is wrong.

    Files that do not exist or cannot be read raise OSError instead.
    """


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of an environment besides its packages."""

    search_dirs: tuple[str, ...] = ()
    bin_dirs: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Metadata:
    """env.toml: visibility, texts, and configuration."""

    visibility: Visibility
    user_group: str
    description: str
    deprecated: str
    created_at: float
    updated_at: float
    config: Config


@dataclass(frozen=True, slots=True)
class Parent:
    """A layer that another one extends. Lists of parents begin with the nearest one."""

    full_name: EnvironmentName
    layer: str
    lock_hash: str


@dataclass(frozen=True, slots=True)
class Layer:
    """layer.toml: the properties of a layer."""

    lock_hash: str
    python_version: str
    platform: str  # as in linux-x86_64; empty if unknown
    requested: tuple[str, ...]
    packages: int
    size_bytes: int
    sites: tuple[str, ...]  # site directories of a Python outside haienv
    parents: tuple[Parent, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """image.toml: the properties of a layer's packed form."""

    sha256: str
    unpacked_bytes: int
    files: int


def parse_metadata(text: str) -> Metadata:
    """Parse env.toml. Raise BrokenEnvironment."""
    table = _table(text, "env.toml")
    # The server does not need these keys; haienv does.
    _texts(table, "tags")
    _matching(table, "previous", _LAYER_OR_NONE)
    return Metadata(
        visibility=_visibility(_text(table, "visibility", "private")),
        user_group=_text(table, "group", ""),
        description=_text(table, "description", ""),
        deprecated=_text(table, "deprecated", ""),
        created_at=_time(table, "created"),
        updated_at=_time(table, "updated"),
        config=_config(_get(table, "config", dict, {})),
    )


def parse_config(text: str) -> Config:
    """Parse a table [config] without the rest of env.toml. Raise BrokenEnvironment."""
    return _config(_load(text, "it"))


def _config(table: Mapping[str, Any]) -> Config:
    _check_hooks(table)
    return Config(
        search_dirs=_directories(table, "search_dirs"),
        bin_dirs=_directories(table, "bin_dirs"),
        variables=_variables(_get(table, "variables", dict, {})),
    )


def parse_layer(text: str) -> Layer:
    """Parse layer.toml. Raise BrokenEnvironment."""
    table = _table(text, "layer.toml")
    parents = _get(table, "parents", list, [])
    _bounded("parents", parents)
    layer = Layer(
        lock_hash=_matching(table, "lock_hash", LOCK_HASH),
        python_version=_matching(table, "python", _PYTHON),
        platform=_text(table, "platform", ""),
        requested=_texts(table, "wanted"),
        packages=_count(table, "packages"),
        size_bytes=_count(table, "size_bytes"),
        sites=_directories(table, "sites"),
        parents=tuple(map(_parent, parents)),
    )
    _check_unused_keys(table)
    return layer


def _check_unused_keys(table: Mapping[str, Any]) -> None:
    """Check the keys of a layer that only haienv needs."""
    _matching(table, "interpreter", _PATH)
    for key in ("libc", "cuda", "backend"):
        _text(table, key, "")
    _directories(table, "editable")
    _time(table, "created")


def _table(text: str, file: str) -> dict[str, Any]:
    table = _load(text, file)
    schema = table.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise BrokenEnvironment(f"{file} has schema {schema!r:.40}; this server reads {SCHEMA}")
    return table


def _load(text: str, file: str) -> dict[str, Any]:
    try:
        return loads(text)
    except ValueError as error:
        raise BrokenEnvironment(f"{file} is not TOML: {str(error)[:200]}") from error


def _get(table: Mapping[str, Any], key: str, kind: type[Value], default: Value) -> Value:
    value = table.get(key, default)
    if type(value) is not kind:
        raise BrokenEnvironment(f"{key} is {value!r:.40}, not {kind.__name__}")
    return value


def _text(table: Mapping[str, Any], key: str, default: str) -> str:
    return _printable(key, _get(table, key, str, default))


def _matching(table: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    value = _text(table, key, "")
    if not pattern.fullmatch(value):
        raise BrokenEnvironment(f"{key} is {value!r:.80}, which is invalid")
    return value


def _count(table: Mapping[str, Any], key: str) -> int:
    value = _get(table, key, int, 0)
    if not 0 <= value < 1 << 60:
        raise BrokenEnvironment(f"{key} is {value!r:.40}, which is invalid")
    return value


def _time(table: Mapping[str, Any], key: str) -> float:
    value = _get(table, key, datetime.datetime, datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
    try:
        return max(0.0, (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).timestamp())
    except (OverflowError, ValueError) as error:
        raise BrokenEnvironment(f"{key} is {value}, which is invalid") from error


def _visibility(text: str) -> Visibility:
    for visibility in Visibility:
        if text == visibility.value.lower():
            return visibility
    raise BrokenEnvironment(f"visibility is {text!r:.40}, not private, group or public")


def _texts(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _bounded(key, _get(table, key, list, []))
    if not all(type(value) is str for value in values):
        raise BrokenEnvironment(f"{key} must contain only texts")
    return tuple(_printable(key, value) for value in values)


def _directories(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _texts(table, key)
    for value in values:
        if not value.startswith("/") or ":" in value:
            raise BrokenEnvironment(
                f"{key} has {value!r:.80}, which is not an absolute path without a colon"
            )
    return values


def _check_hooks(table: Mapping[str, Any]) -> None:
    """Check the hooks, although only haienv runs them: haienv reports a file as broken if a hook is not a command."""
    for hook in _texts(table, "hooks"):
        try:
            is_command = bool(shlex.split(hook))
        except ValueError:
            is_command = False
        if not is_command:
            raise BrokenEnvironment(f"hooks has {hook!r:.80}, which is not a command")


def _variables(table: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    for name, value in _bounded("variables", table).items():
        if not _VARIABLE.fullmatch(name) or type(value) is not str:
            raise BrokenEnvironment(
                f"variable {name!r:.80} has an invalid name, or its value is not a text"
            )
        if name in _RESERVED or name.startswith(("HF_ENV_", "_HAIENV_")):
            raise BrokenEnvironment(f"variable {name[:80]} is set by activation itself")
        if any(letter in value for letter in "\0\n\r") or len(value) > 1 << 16:
            raise BrokenEnvironment(f"the value of variable {name[:80]} is invalid")
    return tuple(table.items())


def parse_image(text: str) -> Image:
    """Parse image.toml. Raise BrokenEnvironment."""
    table = _table(text, "image.toml")
    _count(table, "size_bytes")
    sizes = _count(table, "unpacked_bytes"), _count(table, "files")
    return Image(_matching(table, "sha256", LOCK_HASH), *sizes)


def _parent(table: object) -> Parent:
    if not isinstance(table, dict):
        raise BrokenEnvironment("parents must contain only tables")
    full_name = EnvironmentName(_matching(table, "owner", NAME), _matching(table, "name", NAME))
    return Parent(
        full_name, _matching(table, "layer", LAYER), _matching(table, "lock_hash", LOCK_HASH)
    )


def _printable(key: str, value: str) -> str:
    """Return a text for users. Raise BrokenEnvironment if it is too long or cannot be displayed."""
    if not value.isprintable():
        raise BrokenEnvironment(f"{key} has characters that cannot be displayed")
    _bounded(key, value)
    return value


def _bounded(key: str, value: Any) -> Any:
    """Return a text or collection. Raise BrokenEnvironment if it is too large."""
    limit = _MAX_TEXT_CHARS if isinstance(value, str) else _MAX_ITEMS
    if len(value) > limit:
        raise BrokenEnvironment(f"{key} has {len(value)} parts; at most {limit} are read")
    return value
