"""Stores and selects profiles: which server to connect to, and with which token. Loads no grpc.

Profiles are stored in one TOML file, `$HAI_CONFIG` or `hai/config.toml` in the user's config directory:

    current = "lab"
    [profiles.lab]
    server = "hai.example.org:7450"     # or several servers: "hai1.example.org:7450,hai2.example.org:7450"
    token = "…"
    ca = "/etc/hai/ca.pem"

Arguments take precedence over environment variables, and these over the file. A token is sent only to the server
that it is stored for, unless an environment variable sets the token. The file has mode 0600 and is replaced
atomically, so that no reader sees an incomplete file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hai.client.errors import NotFound, UsageError
from hai.host.atomic_write import replace_file

SERVER_VARIABLES = ("HAI_SERVER", "MARSV2_SERVER")
TOKEN_VARIABLES = ("HAI_TOKEN", "MARSV2_USER_TOKEN")
PROFILE_VARIABLE = "HAI_PROFILE"
_ADDRESS = re.compile(r"unix(-abstract)?:.+|[^\s/]+:[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Profile:
    """The address of a server, and how to connect to it."""

    name: str = "default"
    server: str = ""  # host:port, or unix:/path; several are separated by commas
    # not in the repr, so that no log or traceback shows it
    token: str = field(default="", repr=False)
    ca: str = ""  # path of the certificate of the server's certificate authority
    insecure: bool = False  # use plaintext although the server is not on loopback

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in `server`. Each of them leads to the same cluster."""
        return tuple(address.strip() for address in self.server.split(","))

    def check(self) -> None:
        """Raise UsageError if the address or the token is malformed. The message does not contain the token."""
        for address in self.addresses:
            if not _ADDRESS.fullmatch(address):
                raise UsageError(
                    f"{address!r} is not the address of a server",
                    hint="write HOST:PORT, as hai.example.org:7450",
                )
        if not (self.token.isascii() and self.token.isprintable()):
            raise UsageError(
                "the token holds characters that no token has",
                hint="store it again with `hai init`, or correct HAI_TOKEN",
            )


def config_path() -> Path:
    """Return the path of the file that stores the profiles."""
    if profile_name := os.environ.get("HAI_CONFIG"):
        return Path(profile_name)
    # imported late: it takes milliseconds, and is not needed with $HAI_CONFIG
    from platformdirs import user_config_path

    return user_config_path("hai") / "config.toml"


def load(name: str | None = None, server: str | None = None) -> Profile:
    """Return the profile to use, from arguments, environment or file. Raises UsageError without a server."""
    document = _read()
    profile_name = name or os.environ.get(PROFILE_VARIABLE) or document.current
    profile = _require_profile(document, profile_name) if profile_name else Profile()
    # HAI_SERVER does not change a profile that the caller names.
    requested = server or (_first_set_variable(SERVER_VARIABLES) if name is None else "")
    if requested and requested != profile.server:
        profile = _profile_of_server(document, requested)
    if name is None and (token := _first_set_variable(TOKEN_VARIABLES).strip()):
        profile = replace(profile, token=token)
    if not profile.server:
        raise UsageError(
            "no server is chosen", hint="run `hai init`, or `hai up` for a server on this machine"
        )
    return profile


def save(profile: Profile, make_current: bool = True) -> None:
    """Add or replace a profile in the file."""
    document = _read()
    profiles = {**document.profiles, profile.name: profile}
    current = profile.name if make_current or not document.current else document.current
    _write(_Document(current, profiles))


def use(name: str) -> None:
    """Make a stored profile the current one."""
    document = _read()
    _require_profile(document, name)
    _write(replace(document, current=name))


def names() -> tuple[str, ...]:
    """Return the names of the stored profiles, sorted."""
    return tuple(sorted(_read().profiles))


def current() -> str:
    """Return the name of the current profile, or an empty string if there is none."""
    return _read().current


def delete(name: str) -> None:
    """Remove a profile from the file."""
    document = _read()
    _require_profile(document, name)
    remaining = {key: value for key, value in document.profiles.items() if key != name}
    _write(_Document("" if document.current == name else document.current, remaining))


@dataclass(frozen=True, slots=True)
class _Document:
    current: str
    profiles: Mapping[str, Profile]


def _require_profile(document: _Document, name: str) -> Profile:
    if name not in document.profiles:
        stored_names = ", ".join(sorted(document.profiles)) or "none"
        raise NotFound(
            f"no profile is named {name!r} in {config_path()}",
            hint=f"stored profiles: {stored_names}; `hai init` adds one",
        )
    return document.profiles[name]


def _profile_of_server(document: _Document, server: str) -> Profile:
    """Return the stored profile of a server, else a new one without a token: no other server may receive it."""
    stored_names = (p for _, p in sorted(document.profiles.items()) if p.server == server)
    return next(stored_names, Profile(name="", server=server))


def _first_set_variable(variables: tuple[str, ...]) -> str:
    return next((value for key in variables if (value := os.environ.get(key))), "")


def _read() -> _Document:
    """Return the stored profiles. A missing file has none. Raises UsageError for a malformed one."""
    path = config_path()
    try:
        data = tomllib.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        return _Document("", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot read {path}: {reason}",
            hint="correct the file, or remove it and run `hai init`",
        ) from error
    tables = data.get("profiles", {})
    if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
        raise UsageError(
            f"{path} has no tables [profiles.NAME]", hint="remove it and run `hai init`"
        )
    return _Document(
        str(data.get("current", "")), {k: _profile_from_table(k, v) for k, v in tables.items()}
    )


def _profile_from_table(name: str, table: Mapping[str, Any]) -> Profile:
    return Profile(
        name=name,
        server=str(table.get("server", "")),
        token=str(table.get("token", "")),
        ca=str(table.get("ca", "")),
        insecure=table.get("insecure") is True,
    )


def _write(document: _Document) -> None:
    import tomli_w  # imported late: most commands only read

    tables = {
        name: _table_from_profile(profile) for name, profile in sorted(document.profiles.items())
    }
    text = tomli_w.dumps({"current": document.current, "profiles": tables})
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode())


def _table_from_profile(profile: Profile) -> dict[str, str | bool]:
    table: dict[str, str | bool] = {"server": profile.server, "token": profile.token}
    if profile.ca:
        table["ca"] = profile.ca
    if profile.insecure:
        table["insecure"] = True
    return table
