"""Parses and writes the records `env.toml`, `layer.toml` and `image.toml`. Pure, except for `utc_now`.

Files of other users are untrusted, so type and content of each field are checked. docs/contributing/environments.md
specifies the format; the server has its own parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast

from hai.toml import loads
from haienv.names import is_layer, is_name, variable_fault

SCHEMA = 1
_PYTHON = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){1,2}[A-Za-z0-9.+-]{0,16}")
_MAX_TEXT_LENGTH, _MAX_VALUE_LENGTH, _MAX_ITEMS = 4096, 1 << 16, 10_000
EPOCH = datetime.fromtimestamp(0, UTC)
Visibility = Literal["private", "group", "public"]
VISIBILITIES: tuple[Visibility, ...] = ("private", "group", "public")
MODES: Mapping[str, int] = {"private": 0o700, "group": 0o750, "public": 0o755}


def utc_now() -> datetime:
    """Return the current time as records contain it, without fractions of a second."""
    return datetime.now(UTC).replace(microsecond=0)


class MalformedRecord(ValueError):
    """A record is invalid; the message says why."""


@dataclass(frozen=True, slots=True)
class Config:
    """The part of an environment besides its packages. `hooks` are commands that run after a change of packages."""

    search_dirs: tuple[str, ...] = ()
    bin_dirs: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EnvMetadata:
    """`env.toml`: the part of an environment that can change while its layer stays the same."""

    visibility: Visibility = "private"
    group: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    deprecated: str = ""
    created: datetime = EPOCH
    updated: datetime = EPOCH
    previous: str = ""
    config: Config = Config()


@dataclass(frozen=True, slots=True)
class Parent:
    """An environment that a layer extends, as the environment was when the layer was built."""

    name: str
    owner: str
    layer: str
    lock_hash: str


@dataclass(frozen=True, slots=True)
class Layer:
    """`layer.toml`: how an immutable layer was built. `wanted` are the requirements that a user has named."""

    lock_hash: str
    python: str
    interpreter: str
    platform: str = ""
    libc: str = ""
    cuda: str = ""
    backend: str = "uv"
    wanted: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    packages: int = 0
    size_bytes: int = 0
    created: datetime = EPOCH
    parents: tuple[Parent, ...] = ()

    @property
    def minor_version(self) -> str:
        """The minor version of the layer's Python, as in 3.11."""
        return minor_version(self.python)


@dataclass(frozen=True, slots=True)
class Image:
    """`image.toml`: describes the packed form of a layer; `unpacked_bytes` is the sum of the file sizes."""

    sha256: str
    size_bytes: int
    unpacked_bytes: int
    files: int


def minor_version(version: str) -> str:
    """Return the first two numbers of a version. Compiled packages run only with the Python of the same numbers."""
    return ".".join(version.split(".")[:2])


def matches_minor(required: str, version: str) -> bool:
    """Return True if a version has the required minor version. The required version 3 matches every Python 3."""
    return f"{minor_version(version)}.".startswith(f"{minor_version(required)}.")


def parse_metadata(text: str) -> EnvMetadata:
    """Parse `env.toml`."""
    table = _table(text)
    config = _get(table, "config", dict, {})
    return EnvMetadata(
        visibility=_visibility(table),
        group=_text(table, "group"),
        description=_text(table, "description"),
        tags=_texts(table, "tags"),
        deprecated=_text(table, "deprecated"),
        created=_timestamp(table, "created"),
        updated=_timestamp(table, "updated"),
        previous=_checked(table, "previous", lambda v: not v or is_layer(v)),
        config=parse_config(config),
    )


def parse_config(table: Mapping[str, Any]) -> Config:
    """Parse the table `[config]`."""
    return Config(
        search_dirs=_directories(table, "search_dirs"),
        bin_dirs=_directories(table, "bin_dirs"),
        variables=_variables(_get(table, "variables", dict, {})),
        hooks=_hooks(table),
    )


def parse_layer(text: str) -> Layer:
    """Parse `layer.toml`."""
    table = _table(text)
    parents = _get(table, "parents", list, [])
    return Layer(
        lock_hash=_checked(table, "lock_hash", _is_hash),
        python=_checked(table, "python", lambda v: _PYTHON.fullmatch(v) is not None),
        interpreter=_checked(table, "interpreter", _is_path),
        platform=_text(table, "platform"),
        libc=_text(table, "libc"),
        cuda=_text(table, "cuda"),
        backend=_text(table, "backend"),
        wanted=_texts(table, "wanted"),
        editable=_directories(table, "editable"),
        sites=_directories(table, "sites"),
        packages=_count(table, "packages"),
        size_bytes=_count(table, "size_bytes"),
        created=_timestamp(table, "created"),
        parents=tuple(_parent(each) for each in parents),
    )


def parse_image(text: str) -> Image:
    """Parse `image.toml`."""
    table = _table(text)
    sizes = (_count(table, key) for key in ("size_bytes", "unpacked_bytes", "files"))
    return Image(_checked(table, "sha256", _is_hash), *sizes)


def to_toml(record: EnvMetadata | Layer | Config | Image) -> str:
    """Return the text of a record, without empty fields."""
    import tomli_w

    head = {} if isinstance(record, Config) else {"schema": SCHEMA}
    return tomli_w.dumps({**head, **_without_empty(asdict(record))}, multiline_strings=False)


def _without_empty(table: Mapping[str, Any]) -> dict[str, Any]:
    fields = {k: _without_empty(v) if k == "config" else v for k, v in table.items()}
    return {key: value for key, value in fields.items() if value}


def _parent(table: object) -> Parent:
    if not isinstance(table, dict):
        raise MalformedRecord("parents is not a list of tables")
    return Parent(
        name=_checked(table, "name", is_name),
        owner=_checked(table, "owner", is_name),
        layer=_checked(table, "layer", is_layer),
        lock_hash=_checked(table, "lock_hash", _is_hash),
    )


def _table(text: str) -> dict[str, Any]:
    try:
        table = loads(text)
    except ValueError as error:
        raise MalformedRecord(f"not TOML: {error}") from error
    schema = _get(table, "schema", int, 0)
    if schema > SCHEMA:
        raise MalformedRecord(f"written by a newer haienv (schema {schema}); update haienv")
    if schema != SCHEMA:
        raise MalformedRecord(f"schema is {schema}, not {SCHEMA}")
    return table


def _get(table: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = table.get(key, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise MalformedRecord(f"{key} is not of type {kind.__name__}")
    return value


def _count(table: Mapping[str, Any], key: str) -> int:
    value = _get(table, key, int, 0)
    if not 0 <= value < 1 << 60:
        raise MalformedRecord(f"{key} is out of range")
    return cast("int", value)


def _text(table: Mapping[str, Any], key: str) -> str:
    value = _get(table, key, str, "")
    if not value.isprintable():
        raise MalformedRecord(f"{key} has unprintable characters")
    if len(value) > _MAX_TEXT_LENGTH:
        raise MalformedRecord(f"{key} has {len(value)} characters; the limit is {_MAX_TEXT_LENGTH}")
    return cast("str", value)


def _texts(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _get(table, key, list, [])
    if not all(isinstance(v, str) and v.isprintable() for v in values):
        raise MalformedRecord(f"{key} is not a list of printable strings")
    if len(values) > _MAX_ITEMS or max(map(len, values), default=0) > _MAX_TEXT_LENGTH:
        raise MalformedRecord(
            f"{key} has more than {_MAX_ITEMS} strings, or one of more than {_MAX_TEXT_LENGTH} characters"
        )
    return tuple(values)


def _checked(table: Mapping[str, Any], key: str, is_valid: Callable[[str], bool]) -> str:
    value = _text(table, key)
    if not is_valid(value):
        raise MalformedRecord(f"{key} = {value!r} is invalid")
    return value


def _is_path(text: str) -> bool:
    return text.startswith("/")


def _is_hash(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def path_fault(directory: str) -> str:
    """Return why a directory cannot be part of a path list; empty if it can."""
    if not directory.startswith("/"):
        return f"{directory!r} is not absolute"
    if ":" in directory or not directory.isprintable():
        return (
            f"{directory!r} cannot be part of a path list: it has a colon or unprintable characters"
        )
    return ""


def hook_fault(command: str) -> str:
    """Return why a text is not a valid hook; empty if it is."""
    import shlex  # slow to import, and not needed to activate an environment

    if not command.isprintable():
        return f"{command!r} has unprintable characters"
    try:
        return "" if shlex.split(command) else "a hook must be a program and its arguments"
    except ValueError as error:
        return f"{command!r} is not a command: {error}"


def _hooks(table: Mapping[str, Any]) -> tuple[str, ...]:
    values = _texts(table, "hooks")
    for fault in filter(None, map(hook_fault, values)):
        raise MalformedRecord(f"hooks: {fault}")
    return values


def value_fault(value: str) -> str:
    """Return why a text is not a valid value of a variable; empty if it is."""
    if "\n" in value or "\r" in value or "\0" in value:
        return "values of variables must be single lines without NUL"
    if any("\ud800" <= character <= "\udfff" for character in value):
        return "values of variables must be UTF-8 text"
    if len(value) > _MAX_VALUE_LENGTH:
        return f"values of variables have at most {_MAX_VALUE_LENGTH} characters"
    return ""


def _directories(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _texts(table, key)
    for fault in filter(None, map(path_fault, values)):
        raise MalformedRecord(f"{key}: {fault}")
    return values


def _variables(table: Mapping[str, Any]) -> dict[str, str]:
    for name, value in table.items():
        if not isinstance(value, str):
            raise MalformedRecord(f"variables.{name} is not a string")
        if fault := variable_fault(name) or value_fault(value):
            raise MalformedRecord(f"variables: {fault}")
    if len(table) > _MAX_ITEMS:
        raise MalformedRecord(f"there are more than {_MAX_ITEMS} variables")
    return dict(table)


def _visibility(table: Mapping[str, Any]) -> Visibility:
    value = _checked({"visibility": "private", **table}, "visibility", lambda v: v in VISIBILITIES)
    return cast("Visibility", value)


def _timestamp(table: Mapping[str, Any], key: str) -> datetime:
    value = _get(table, key, datetime, EPOCH)
    return cast("datetime", value if value.tzinfo else value.replace(tzinfo=UTC))
