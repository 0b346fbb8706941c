"""The server's settings: one frozen value, from a TOML file, HAI_SERVER_* variables and flags, read once in main.

A file that cannot be read, an unknown key or a wrong type is an error at start-up, never a silent default.
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
_CHOICES = {"image_check": ("", "off", "warn", "require")}


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting with its default. Paths are relative to `home`; times are seconds."""

    home: Path
    cluster: str = "local"
    listen: str = "127.0.0.1:0"  # port 0: the port of the last start, or a free one
    advertise: str = ""  # HOST or HOST:PORT where other servers and agents reach this one
    servers: str = ""  # addresses of all, separated by commas: what agents try in turn
    shared: str = ""  # directory that several servers have in common; empty: `home`
    run_token_key: str = ""  # file with the key of run tokens; empty: one is made in `shared`
    database: str = ""  # URL; empty: sqlite in home
    # where browsers reach services of tasks; as `listen`; empty: nowhere
    http_listen: str = "127.0.0.1:0"
    # how browsers see that, https://hai.example.org; each task is a name below it
    http_url: str = ""
    http_paths: bool = False  # there is no wildcard name: tasks are paths below http_url
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""  # what certificates of servers are checked with; empty: tls_cert
    insecure: bool = False  # allow plaintext off loopback
    metrics_port: int = 0  # 0: no metrics
    metrics_host: str = "127.0.0.1"  # where /metrics is served; anybody who reaches it may read it
    admin: str = ""  # name of the first user; empty: the unix user
    nodes: int = 4  # nodes that this machine is divided into
    gpus_per_node: int = 0  # declared (simulated) when the machine has no GPUs of its own
    groups: Mapping[str, int] = field(default_factory=dict)  # group -> nodes; replaces `nodes`
    default_quota: int = -1  # nodes per user, group and level without a quota row; -1: unlimited
    resync_seconds: float = 30.0
    log_bytes_per_rank: int = 256 * 1024 * 1024
    node_ports_from: int = 30_000  # what the cluster gives to services of type NodePort
    node_ports_to: int = 32_767
    image_check: str = ""  # off, warn or require; empty: off with processes, warn with pods
    # launch/kubernetes/options.py; empty: processes here
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    environments: str = ""  # directory that haienv writes; empty: see environment_root
    environment_copies: str = ""  # directory of the nodes' own disks for packed ones; empty: none
    environment_copies_bytes: int = 50 * 1024**3  # what one account's copies may hold on a node
    workspace_bytes: int = 0  # what the workspaces of one user may hold together; 0: no limit
    workspace_days: int = 30  # how long what a push overwrote can be restored
    record_decisions: bool = False  # each scheduling pass, in `home`/decisions.jsonl
    # of dev containers by kind (shared, dedicated, spot): at most so many seconds; not named: no limit
    lifetimes: Mapping[str, int] = field(default_factory=dict)
    containers_per_user: int = 0  # dev containers that a user may have at once; 0: no limit
    webhooks: str = ""  # origins (https://HOST) that may be told of tasks, separated by commas
    build_within: float = 0.0  # seconds until all ranks of a run have attached; 0: the launcher's
    agent_heartbeat: float = 5.0  # seconds between two heartbeats of an agent; see domain/timing.py

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.home / 'hai.db'}"

    @property
    def build_seconds(self) -> float:
        """From placing a run until all its ranks must have attached: pods may have to pull an image of many GB."""
        return self.build_within or (600.0 if self.kubernetes else 60.0)

    @property
    def timing(self) -> Timing:
        """Local processes have no lease: what became of them is seen, never concluded from time alone."""
        pods = self.kubernetes
        return Timing(
            self.agent_heartbeat,
            float(pods.get("fence_after", FENCE_SECONDS)) if pods else 0.0,
        )

    @property
    def several(self) -> bool:
        """Whether other servers may have the same database."""
        return self.database.startswith("postgresql")

    @property
    def webhook_origins(self) -> frozenset[str]:
        """Scheme, host and port of each, as domain/accounts/webhook.py compares them."""
        return frozenset(map(origin_of, filter(None, map(str.strip, self.webhooks.split(",")))))

    @property
    def common(self) -> Path:
        """Where what several servers have in common is kept."""
        return self.home / self.shared

    @property
    def environment_root(self) -> Path:
        """Where environments lie; servers, tasks and login nodes see it at the same path."""
        return self.home / self.environments if self.environments else self.common / "environments"

    @property
    def directories(self) -> Mapping[str, Path]:
        """What the server writes to, by what operators call it: there must be room on their disks."""
        wanted = {"home": self.home, "shared": self.common, "environments": self.environment_root}
        return {name: path for name, path in wanted.items() if name == "home" or path != self.home}

    @property
    def copies_of_environments(self) -> str:
        """Where agents unpack environments, on their nodes; empty: nowhere."""
        return str(self.home / self.environment_copies) if self.environment_copies else ""

    @property
    def authority(self) -> str:
        """What certificates of servers are checked with; empty: no TLS."""
        return (self.tls_ca or self.tls_cert) if self.tls_cert else ""


def load(home: Path, overrides: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Defaults < `home`/hai.toml < HAI_SERVER_* < overrides. Raises Invalid with every violation."""
    wanted = {**_from_file(home / "hai.toml"), **_from_environ(environ), **overrides}
    if "kubernetes" not in wanted:
        wanted.setdefault("environments", _own_environments(environ))
    kinds = _kinds()
    violations = [_unknown(key, kinds) for key in wanted if key not in kinds]
    violations += [
        _wrong(k, v, kinds[k]) for k, v in wanted.items() if k in kinds and not _is(v, kinds[k])
    ]
    violations += [
        Violation(key, f"must be one of {', '.join(filter(None, known))}, not {wanted[key]!r}")
        for key, known in _CHOICES.items()
        if wanted.get(key, "") not in known
    ]
    if violations:
        raise Invalid(tuple(violations), reason="BAD_SETTINGS")
    certificates = {key: str(home / wanted[key]) for key in _CERTIFICATES if wanted.get(key)}
    settings = replace(Settings(home=home), **{**wanted, **certificates})
    if violations := list(setting_ranges.violations(settings)):
        raise Invalid(tuple(violations), reason="BAD_SETTINGS")
    return settings


def _kinds() -> dict[str, Any]:
    hints = get_type_hints(Settings)
    return {f.name: hints[f.name] for f in fields(Settings) if f.name != "home"}


def _from_file(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:  # no TOML, or no UTF-8
        raise Invalid(
            (Violation(str(path), f"cannot be read: {error}"),), reason="BAD_SETTINGS"
        ) from error


def _own_environments(environ: Mapping[str, str]) -> str:
    """Where haienv keeps those of this account; empty: nobody says where that is."""
    home = environ.get("HOME")
    data = environ.get("XDG_DATA_HOME") or (f"{home}/.local/share" if home else "")
    return environ.get("HAIENV_HOME") or (f"{data}/haienv" if data else "")


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    prefix, kinds = "HAI_SERVER_", _kinds()
    found = {k.removeprefix(prefix).lower(): v for k, v in environ.items() if k.startswith(prefix)}
    # files that secrets are made of end in a newline
    return {k: _parse(v.strip(), kinds.get(k)) for k, v in found.items()}


def _parse(text: str, kind: Any) -> Any:
    if kind is bool:
        return {"1": True, "true": True, "0": False, "false": False}.get(text.lower(), text)
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def _is(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind in (int, str, bool):
        return type(value) is kind
    if kind == Mapping[str, Any]:
        return isinstance(value, Mapping)  # whoever uses it looks closer
    return isinstance(value, Mapping) and all(type(n) is int and n >= 0 for n in value.values())


def _unknown(key: str, kinds: Mapping[str, Any]) -> Violation:
    near = difflib.get_close_matches(key, kinds, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return Violation(key, f"no such setting{hint}")


def _wrong(key: str, value: Any, kind: Any) -> Violation:
    return Violation(key, f"{value!r} is not {_NAMES[kind]}")


_NAMES: Mapping[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Mapping[str, int]: "a table of whole numbers from 0",
    Mapping[str, Any]: "a table",
}
