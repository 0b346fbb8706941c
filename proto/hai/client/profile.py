"""Which server to connect to, and with which token. Loads no grpc.

Profiles are stored in one TOML file, `$HAI_CONFIG` or `hai/config.toml` in the user's config directory:

    current = "lab"
    [profiles.lab]
    server = "hai.example.org:7450"     # or several servers: "hai1.example.org:7450,hai2.example.org:7450"
    token = "…"
    ca = "/etc/hai/ca.pem"

An argument beats the environment, the environment beats the file. A token goes only to the server
that it is stored for, unless the environment sets one. The file has mode 0600 and is replaced
atomically, so that no reader sees half of it.
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
    """A server and the right to use it."""

    name: str = "default"
    server: str = ""  # host:port, or unix:/path; several are separated by commas
    token: str = field(default="", repr=False)  # never shown in a log or a traceback
    ca: str = ""  # file with the certificate authority of the server
    insecure: bool = False  # use plaintext although the server is not on loopback

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the servers. Any of them is enough."""
        return tuple(address.strip() for address in self.server.split(","))

    def check(self) -> None:
        """Raise UsageError if the address or the token is malformed. The message does not contain the token."""
        for address in self.addresses:
            if not _ADDRESS.fullmatch(address):
                raise UsageError(
                    f"{address!r} is no address of a server",
                    hint="write HOST:PORT, as hai.example.org:7450",
                )
        if not (self.token.isascii() and self.token.isprintable()):
            raise UsageError(
                "the token holds characters that no token has",
                hint="store it again with `hai init`, or correct HAI_TOKEN",
            )


def config_path() -> Path:
    """The file that stores the profiles."""
    if chosen := os.environ.get("HAI_CONFIG"):
        return Path(chosen)
    from platformdirs import user_config_path  # only needed without $HAI_CONFIG; costs milliseconds

    return user_config_path("hai") / "config.toml"


def load(name: str | None = None, server: str | None = None) -> Profile:
    """The profile to use: argument, then environment, then file. Raises UsageError without a server."""
    document = _read()
    chosen = name or os.environ.get(PROFILE_VARIABLE) or document.current
    profile = _stored(document, chosen) if chosen else Profile()
    # HAI_SERVER does not change a profile that the caller names.
    requested = server or (_first_set(SERVER_VARIABLES) if name is None else "")
    if requested and requested != profile.server:
        profile = _profile_of_server(document, requested)
    if name is None and (token := _first_set(TOKEN_VARIABLES).strip()):
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
    _stored(document, name)
    _write(replace(document, current=name))


def names() -> tuple[str, ...]:
    """Names of the stored profiles, sorted."""
    return tuple(sorted(_read().profiles))


def current() -> str:
    """Name of the current profile; empty: none."""
    return _read().current


def delete(name: str) -> None:
    """Remove a profile from the file."""
    document = _read()
    _stored(document, name)
    remaining = {key: value for key, value in document.profiles.items() if key != name}
    _write(_Document("" if document.current == name else document.current, remaining))


@dataclass(frozen=True, slots=True)
class _Document:
    current: str
    profiles: Mapping[str, Profile]


def _stored(document: _Document, name: str) -> Profile:
    if name not in document.profiles:
        known = ", ".join(sorted(document.profiles)) or "none"
        raise NotFound(
            f"no profile is named {name!r} in {config_path()}",
            hint=f"stored profiles: {known}; `hai init` adds one",
        )
    return document.profiles[name]


def _profile_of_server(document: _Document, server: str) -> Profile:
    """The stored profile of that server, else one without a token: a token goes to no other server."""
    known = (p for _, p in sorted(document.profiles.items()) if p.server == server)
    return next(known, Profile(name="", server=server))


def _first_set(variables: tuple[str, ...]) -> str:
    return next((value for key in variables if (value := os.environ.get(key))), "")


def _read() -> _Document:
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
    return _Document(str(data.get("current", "")), {k: _profile(k, v) for k, v in tables.items()})


def _profile(name: str, table: Mapping[str, Any]) -> Profile:
    return Profile(
        name=name,
        server=str(table.get("server", "")),
        token=str(table.get("token", "")),
        ca=str(table.get("ca", "")),
        insecure=table.get("insecure") is True,
    )


def _write(document: _Document) -> None:
    import tomli_w  # reading, the usual case, does without it

    tables = {name: _table(profile) for name, profile in sorted(document.profiles.items())}
    text = tomli_w.dumps({"current": document.current, "profiles": tables})
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode())


def _table(profile: Profile) -> dict[str, str | bool]:
    table: dict[str, str | bool] = {"server": profile.server, "token": profile.token}
    if profile.ca:
        table["ca"] = profile.ca
    if profile.insecure:
        table["insecure"] = True
    return table
