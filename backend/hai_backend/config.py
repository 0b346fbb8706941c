"""The settings of the server, read once at the start from a TOML file, HAI_SERVER_* variables and flags.

An unreadable file, an unknown key or a wrong type is an error at the start.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from hai_backend.domain import setting_ranges
from hai_backend.domain.accounts.webhook import origin_of
from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.timing import FENCE_SECONDS, Timing

_CERTIFICATES = ("tls_cert", "tls_key", "tls_ca")
_CHOICES = {
    "image_check": ("", "off", "warn", "require"),
    "durable": ("", "after_leaving", "before_leaving"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings with their defaults. Paths are relative to `home`, times are in seconds."""

    home: Path
    cluster: str = "local"
    listen: str = "127.0.0.1:0"  # port 0 means the port of the last start, else a free port
    advertise: str = ""  # HOST or HOST:PORT where other servers and agents reach this one
    servers: str = ""  # addresses of all servers, separated by commas; agents try them in turn
    shared: str = ""  # directory that several servers share; empty means `home`
    # file with the key of run tokens; if empty, the first server creates a key in `shared`
    run_token_key: str = ""
    database: str = ""  # URL; empty means SQLite in `home`
    # address, like `listen`, for browsers that use services of tasks; if empty, browsers cannot use services
    http_listen: str = "127.0.0.1:0"
    # URL of `http_listen` for browsers, such as https://hai.example.org; each task has a host name below it
    http_url: str = ""
    # each task has a path below http_url instead of a host name, for sites without a wildcard DNS name
    http_paths: bool = False
    tls_cert: str = ""  # file with the certificate of the server (PEM); empty disables TLS
    tls_key: str = ""  # file with the private key of the certificate (PEM)
    # file with the authority that signed the certificates of all servers; empty means tls_cert
    tls_ca: str = ""
    insecure: bool = False  # allow unencrypted connections from other machines
    metrics_port: int = 0  # 0 disables metrics
    metrics_host: str = "127.0.0.1"  # address of /metrics, which needs no token
    admin: str = ""  # name of the first user; empty means the Unix user of the server
    # number of nodes into which this machine is divided; 0 means one node if it has GPUs, else four
    nodes: int = 0
    gpus_per_node: int = 0  # simulated GPUs of each node if the machine has no GPUs
    # numbers of nodes by node group; replaces `nodes`
    groups: Mapping[str, int] = field(default_factory=dict)
    # nodes that a user without a quota may use per group and level; -1 means no limit
    default_quota: int = -1
    resync_seconds: float = 30.0  # longest time between two scheduling passes
    log_bytes_per_rank: int = 256 * 1024 * 1024
    # first and last port that the Kubernetes cluster assigns to services of type NodePort
    node_ports_from: int = 30_000
    node_ports_to: int = 32_767
    # off, warn or require; empty means off for local processes and warn for pods
    image_check: str = ""
    # options of launch/kubernetes/options.py; if empty, tasks run as local processes
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    environments: str = ""  # directory of environments; for the default see environment_root
    # directory in memory (a tmpfs) for checkpoints that are not yet on disk; empty means one in /dev/shm
    staging: str = ""
    staging_bytes: int = 0  # limit of these checkpoints on a node; 0 means half of its memory
    # when checkpoints must be on disk: after_leaving or before_leaving; a task may demand the latter
    durable: str = "after_leaving"
    # directory on the local disk of each node for unpacked environments; empty disables copies
    environment_copies: str = ""
    environment_copies_bytes: int = 50 * 1024**3  # limit of the copies of one account on a node
    workspace_bytes: int = 0  # limit of all workspaces of a user; 0 means no limit
    workspace_days: int = 30  # how long overwritten files can be restored
    record_decisions: bool = False  # record scheduling passes in `home`/decisions.jsonl
    # longest lifetime of dev containers by kind (shared, dedicated, spot); a kind without an entry has no limit
    lifetimes: Mapping[str, int] = field(default_factory=dict)
    containers_per_user: int = 0  # dev containers that a user may have at once; 0 means no limit
    webhooks: str = ""  # origins (https://HOST) of allowed webhooks, separated by commas
    # seconds until all ranks of a run must have attached; for 0 see build_seconds
    build_within: float = 0.0
    # most seconds that a program has to save when it is asked to leave, while bytes are saved; a task may ask for more
    save_within_max: float = 120.0
    agent_heartbeat: float = 5.0  # seconds between two heartbeats of an agent; see domain/timing.py

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.home / 'hai.db'}"

    @property
    def build_seconds(self) -> float:
        """Seconds from the placement of a run until all its ranks must have attached.

        Pods have more time, because they may have to pull an image of many GB.
        """
        return self.build_within or (600.0 if self.kubernetes else 60.0)

    @property
    def timing(self) -> Timing:
        """Times of heartbeats and leases. Local processes have no lease, because the server sees how they end."""
        pods = self.kubernetes
        return Timing(
            self.agent_heartbeat,
            float(pods.get("fence_after", FENCE_SECONDS)) if pods else 0.0,
        )

    @property
    def several(self) -> bool:
        """Whether other servers may use the same database."""
        return self.database.startswith("postgresql")

    @property
    def webhook_origins(self) -> frozenset[str]:
        """Scheme, host and port of each allowed origin, as in domain/accounts/webhook.py."""
        return frozenset(map(origin_of, filter(None, map(str.strip, self.webhooks.split(",")))))

    @property
    def common(self) -> Path:
        """The directory that several servers share."""
        return self.home / self.shared

    @property
    def environment_root(self) -> Path:
        """The directory of environments. Servers, tasks and login nodes must see it at the same path."""
        return self.home / self.environments if self.environments else self.common / "environments"

    @property
    def directories(self) -> Mapping[str, Path]:
        """The directories that the server writes to, by the name in messages and metrics."""
        paths = {"home": self.home, "shared": self.common, "environments": self.environment_root}
        return {name: path for name, path in paths.items() if name == "home" or path != self.home}

    @property
    def copies_of_environments(self) -> str:
        """The directory of nodes in which agents unpack environments; empty if they do not."""
        return str(self.home / self.environment_copies) if self.environment_copies else ""

    @property
    def authority(self) -> str:
        """The file with the certificate authority of servers; empty without TLS."""
        return (self.tls_ca or self.tls_cert) if self.tls_cert else ""


def load(home: Path, overrides: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Load the settings from `home`/hai.toml, HAI_SERVER_* variables and `overrides`.

    A later source overrides an earlier one, and all override the defaults. Raises Invalid with all violations.
    """
    values = {**_from_file(home / "hai.toml"), **_from_environ(environ), **overrides}
    if "kubernetes" not in values:
        values.setdefault("environments", _default_environments(environ))
    types = _setting_types()
    violations = [_unknown_setting(key, types) for key in values if key not in types]
    violations += [
        _wrong_type(k, v, types[k])
        for k, v in values.items()
        if k in types and not _has_type(v, types[k])
    ]
    violations += [
        Violation(key, f"must be one of {', '.join(filter(None, choices))}, not {values[key]!r}")
        for key, choices in _CHOICES.items()
        if values.get(key, "") not in choices
    ]
    if violations:
        raise Invalid(tuple(violations), reason="BAD_SETTINGS")
    certificates = {key: str(home / values[key]) for key in _CERTIFICATES if values.get(key)}
    settings = replace(Settings(home=home), **{**values, **certificates})
    if violations := list(setting_ranges.violations(settings)):
        raise Invalid(tuple(violations), reason="BAD_SETTINGS")
    return settings


def _setting_types() -> dict[str, Any]:
    hints = get_type_hints(Settings)
    return {f.name: hints[f.name] for f in fields(Settings) if f.name != "home"}


def _from_file(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:  # invalid TOML or UTF-8
        raise Invalid(
            (Violation(str(path), f"cannot be read: {error}"),), reason="BAD_SETTINGS"
        ) from error


def _default_environments(environ: Mapping[str, str]) -> str:
    """Return the directory of the environments of this account, or an empty string if it is unknown."""
    home = environ.get("HOME")
    data = environ.get("XDG_DATA_HOME") or (f"{home}/.local/share" if home else "")
    return environ.get("HAIENV_HOME") or (f"{data}/haienv" if data else "")


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    prefix, types = "HAI_SERVER_", _setting_types()
    found = {k.removeprefix(prefix).lower(): v for k, v in environ.items() if k.startswith(prefix)}
    # values from files of a Secret end with a newline
    return {k: _parse(v.strip(), types.get(k)) for k, v in found.items()}


def _parse(text: str, value_type: Any) -> Any:
    if value_type is bool:
        return {"1": True, "true": True, "0": False, "false": False}.get(text.lower(), text)
    if value_type in (int, float):
        try:
            return value_type(text)
        except ValueError:
            return text
    return text


def _has_type(value: Any, value_type: Any) -> bool:
    if value_type is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if value_type in (int, str, bool):
        return type(value) is value_type
    if value_type == Mapping[str, Any]:
        return isinstance(value, Mapping)  # the user of the table validates its contents
    return isinstance(value, Mapping) and all(type(n) is int and n >= 0 for n in value.values())


def _unknown_setting(key: str, types: Mapping[str, Any]) -> Violation:
    similar = difflib.get_close_matches(key, types, n=3)
    hint = f"; did you mean {' or '.join(similar)}?" if similar else ""
    return Violation(key, f"no such setting{hint}")


def _wrong_type(key: str, value: Any, value_type: Any) -> Violation:
    return Violation(key, f"{value!r} is not {_TYPE_NAMES[value_type]}")


_TYPE_NAMES: Mapping[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Mapping[str, int]: "a table of whole numbers from 0",
    Mapping[str, Any]: "a table",
}
