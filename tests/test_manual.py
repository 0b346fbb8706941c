"""The manual's tables match the code: commands, options, settings, variables, fields, reasons, metrics.

A row of CLAIMS says which column of which tables names what. Each check has two directions: what the manual names
exists, and what exists is in the manual. Tables that name nothing of the code are listed in PROSE, so that no new table
is forgotten.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

import hai.task
from hai.client import errors, profile
from hai.client.taskfile.fields import paths
from hai.task import env
from hai.v1 import task_pb2
from hai_backend import main as server
from hai_backend.api.audit.rows import Action
from hai_backend.api.containers.container_limits import CONTAINER_KINDS
from hai_backend.api.scheduling.convert_policy import policy_to_proto
from hai_backend.config import Settings
from hai_backend.domain.accounts.right import Right
from hai_backend.domain.accounts.webhook import Format, WebhookEvent
from hai_backend.domain.mounts.variables import KINDS as MOUNT_ATTRIBUTES
from hai_backend.domain.scheduling.plan import WaitReason
from hai_backend.launch.kubernetes.options import Options
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.metrics.prometheus import Metrics, SuspendReason
from hai_backend.scheduler.explain.remedy import Change
from hai_backend.scheduler.policy.policy import Policy, to_mapping
from hai_jupyter.app import HaiJupyter
from hai_jupyter.magics import HaiMagics
from hai_tui.cli import errors as failures
from hai_tui.cli.command import COMMON, TABLE
from hai_tui.cli.main import ENTRIES, make_root
from hai_tui.cli.settings import FORMATS
from hai_tui.views.policy import SETTING_HINTS, settings_text
from haienv.cli.main import COMMANDS as HAIENV_COMMANDS
from tests.markdown_tables import Table, code_spans, tables
from tests.test_architecture import MODULES, ROOT

DOCS = ROOT / "docs"
Names = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A column of the tables under `section` whose first header is `header` has exactly the names of `in_code`.

    `pattern` finds names within a code span. If `row` is given, only the row with this first cell counts.
    """

    page: str
    section: str
    header: str
    in_code: Names
    pattern: str = r"[\w.]+"
    column: int = 0
    row: str = ""
    complete: bool = True  # if False, the manual lists only some of the names here

    def found(self) -> list[Table]:
        """Return the tables to which the claim applies."""
        return [table for table in tables(DOCS / self.page) if self.is_about(table)]

    def is_about(self, table: Table) -> bool:
        return (table.section, table.header[0].replace("`", "")) == (self.section, self.header)

    def named(self) -> list[str]:
        """Return the names in the manual, in order."""
        rows = (row for table in self.found() for row in table.rows)
        cells = (row[self.column] for row in rows if self.row in ("", row[0].replace("`", "")))
        spans = (span for cell in cells for span in code_spans(cell))
        return [name for span in spans for name in re.findall(self.pattern, span)]


OPTION = r"(?<!\S)--?[A-Za-z][\w-]*"
VARIABLE = r"(?<!<)\b[A-Z][A-Z0-9]*_[A-Z0-9_]*|\bRANK\b|\bNNODES\b"


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command without subcommands, with its words."""
    context = click.Context(command)
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    for word in command.list_commands(context):
        inner = command.get_command(context, word)
        assert inner is not None
        if not inner.hidden:
            yield from _commands(inner, (*path, word))


def _options(words: str) -> set[str]:
    """Return the options of a command of `hai`, without those that every command has."""
    command: click.Command = make_root()
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    own = (p for p in command.params if isinstance(p, click.Option) and not p.hidden)
    return {name for option in own for name in (*option.opts, *option.secondary_opts)}


def _choices(words: str, option: str) -> Iterable[str]:
    """Return the choices of an option of a command."""
    command = dict(_commands(make_root()))[words]
    kind = next(p.type for p in command.params if option in p.opts)
    assert isinstance(kind, click.Choice)
    return [str(choice) for choice in kind.choices]


def _share_values() -> set[str]:
    return {option.lstrip("-") for option in _options("share set")} - {"g", "group"}


def _flags() -> Iterator[str]:
    """Yield the flags of `hai-server`."""
    for action in server._parser()._actions:
        yield from (name for name in action.option_strings if name not in ("-h", "--help"))


def _fields(message: Any) -> Names:
    return lambda: message.DESCRIPTOR.fields_by_name


def _settings() -> set[str]:
    """Return the server's settings, without the flag `--home` and the table that has its own table in the manual."""
    return {field.name for field in fields(Settings)} - {"home", "kubernetes"}


def _pod_settings() -> set[str]:
    """Return the settings of pods, without those that the server fills in from its other settings."""
    known = {field.name for kind in (ClusterSettings, Options) for field in fields(kind)}
    return known - {"instance", "ca_pem", "shared_path", "agent_heartbeat"}


@cache
def _modules() -> Mapping[Path, tuple[ast.AST, ...]]:
    """All nodes of what runs in production, by module; parsed once, because that takes seconds."""
    found = (path for path in MODULES if not {"testing", "tests"} & set(path.parts))
    return {path: tuple(ast.walk(ast.parse(path.read_text("utf-8")))) for path in found}


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _variables() -> set[str]:
    """Return the variables that our code reads, or sets for programs."""
    ours = re.compile(r"\b(?:HAI|HAIENV|HF_ENV|HFAI|MARSV2)_[A-Z_]+")
    texts = (text for nodes in _modules().values() for text in _texts(nodes) if "_" in text)
    read = {name for text in texts for name in ours.findall(text)}
    return {*read, *(value for name, value in vars(env).items() if name.isupper())}


def _reasons() -> Iterator[str]:
    """Yield the reasons of errors of the server and of `hai`: of classes, of calls, and of rules."""
    for path, nodes in _modules().items():
        if {"hai", "hai_backend", "hai_tui"} & set(path.parts) and "fake" not in "/".join(
            path.parts
        ):
            given = (ast.walk(part) for node in nodes for part in _reasons_given(node))
            texts = (text for part in given for text in _texts(part))
            yield from filter(re.compile(r"[A-Z][A-Z_]{2,}").fullmatch, texts)


def _reasons_given(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Call(func=ast.Attribute(attr="add"), args=[_, _, reason]):
            yield reason
        case ast.Call(keywords=keywords):
            yield from (keyword.value for keyword in keywords if keyword.arg == "reason")
        case ast.Assign(targets=[ast.Name(id="reason" | "default_reason")], value=value):
            yield value
        case ast.AnnAssign(target=ast.Name(id="default_reason"), value=ast.AST() as value):
            yield value


def _exit_codes() -> set[str]:
    """Return the exit codes of errors, and the shell's exit codes for signals."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    known = [kind for kind in kinds if issubclass(kind, errors.HaiError)]
    codes = {failures.exit_code(kind.__new__(kind)) for kind in known}
    return {str(code) for code in {*codes, 0, failures.INTERRUPTED, 128 + 13}}


def _metrics() -> Iterator[str]:
    for metric in Metrics().registry.collect():
        yield f"{metric.name}_total" if metric.type == "counter" else metric.name


def _alerts() -> set[str]:
    """Return the alerts of the chart."""
    rules = (ROOT / "backend/deploy/chart/files/alerts.yaml").read_text("utf-8")
    return set(re.findall(r"- alert: (\w+)", rules))


def _traits() -> Iterable[str]:
    return [
        name
        for name, trait in HaiJupyter.class_own_traits().items()
        if trait.metadata.get("config")
    ]


def _calls() -> Iterator[str]:
    """Yield the functions of the SDK."""
    for name in hai.task.__all__:
        if callable(found := getattr(hai.task, name)) and not isinstance(found, type):
            yield name


def _magics() -> Iterator[str]:
    for marks, kind in (("%", "line"), ("%%", "cell")):
        yield from (f"{marks}{name}" for name in HaiMagics.magics[kind])


CLAIMS = [
    Claim("cli.md", "The hai command", "", lambda: (entry.name for entry in ENTRIES), "[a-z-]+", 1),
    Claim(
        "cli.md",
        "Which server",
        "what",
        lambda: {*profile.SERVER_VARIABLES, *profile.TOKEN_VARIABLES, "HAI_PROFILE"},
        r"HAI_\w+",
        1,
        complete=False,
    ),
    Claim("cli.md", "Submitting", "option", lambda: _options("python"), OPTION, complete=False),
    Claim("cli.md", "What would help", "change", lambda: list(Change)),
    Claim("cli.md", "Output", "option", lambda: FORMATS, r"-o (\w+)"),
    Claim(
        "cli.md",
        "JSON",
        "command",
        lambda: {word for path, _ in _commands(make_root()) for word in (path, *path.split())},
        r"^[a-z][a-z-]*(?: [a-z]+)?(?= --|$)",
        complete=False,
    ),
    Claim("cli.md", "JSON", "field", _fields(task_pb2.Task), r"^[a-z_]+$"),
    Claim("cli.md", "JSON", "field", _fields(task_pb2.Run), r"\w+", 1, "run"),
    Claim("cli.md", "JSON", "field", _fields(task_pb2.Rank), r"\w+", 1, "run.ranks[]"),
    Claim("cli.md", "JSON", "field", _fields(task_pb2.Waiting), r"\w+", 1, "waiting"),
    Claim("cli.md", "Exit codes", "code", _exit_codes, r"\d+"),
    Claim("containers.md", "Kinds", "--kind", lambda: CONTAINER_KINDS),
    Claim(
        "containers.md",
        "For operators",
        "setting",
        lambda: (f.name for f in fields(Settings)),
        complete=False,
    ),
    Claim(
        "environments.md",
        "The cluster and other machines",
        "command",
        lambda: HAIENV_COMMANDS,
        r"haienv (\w+)",
        complete=False,
    ),
    Claim(
        "environments.md",
        "For scripts",
        "variable",
        lambda: (name for name in _variables() if name.startswith(("HAIENV_", "HF_ENV_"))),
        VARIABLE,
    ),
    Claim(
        "jupyter.md", "Install", "setting of the Jupyter server", _traits, r"c\.HaiJupyter\.(\w+)"
    ),
    Claim("jupyter.md", "From a notebook", "magic", _magics, r"^%+\w+"),
    Claim("operate.md", "Settings", "setting", _settings),
    Claim("operate.md", "Pods instead of processes", "setting", _pod_settings),
    Claim("operate.md", "Shares", "value", _share_values),
    Claim("operate.md", "Scheduling of a group", "setting", lambda: SETTING_HINTS),
    Claim("programs.md", "Write programs that yield", "call", _calls, r"^\w+", complete=False),
    Claim("reference.md", "Commands", "command", lambda: dict(_commands(make_root())), r"^.+$"),
    Claim("reference.md", "Calls of the SDK", "call", _calls, r"^\w+"),
    Claim("reference.md", "Flags of hai-server", "flag", _flags, OPTION),
    Claim("reference.md", "Variables", "variable", _variables, VARIABLE),
    Claim("reference.md", "Why a task waits", "reason", lambda: list(WaitReason)),
    Claim("reference.md", "Error reasons", "reason", _reasons),
    Claim("reference.md", "Metrics", "metric", _metrics),
    Claim(
        "reference.md",
        "Metrics",
        "metric",
        lambda: list(SuspendReason),
        r"^[a-z]+$",
        2,
        "hai_suspends_total",
    ),
    Claim("monitoring.md", "What to watch", "question", _metrics, r"hai_\w+", 1, complete=False),
    Claim("monitoring.md", "Alerts", "alert", _alerts),
    Claim("operate.md", "Who changed what", "what", lambda: list(Action), r"[A-Z]\w+", 1),
    Claim("rights.md", "Rights", "right", lambda: list(Right), r"^\w+"),
    Claim("simulate.md", "Simulate", "option", lambda: _options("simulate"), OPTION),
    Claim("storage.md", "Rules", "kind", lambda: _choices("storage add", "--kind"), r"[\w-]+"),
    Claim("storage.md", "Rules", "name", lambda: MOUNT_ATTRIBUTES),
    Claim("task-schema.md", "Fields", "field", paths, r"\S+"),
    Claim("webhooks.md", "Webhooks", "--on", lambda: list(WebhookEvent)),
    Claim("webhooks.md", "Webhooks", "--format", lambda: list(Format)),
]

PROSE = {
    ("cli.md", "What was used"),
    *(("coming-from.md", section) for section in ("Slurm", "Scripts of sbatch", "HAI")),
    ("deploy.md", "What the chart creates"),
    ("glossary.md", "Glossary"),
    ("images.md", "What a task runs in"),
    ("operate.md", "What is kept where"),
    ("scheduling.md", "GPUs"),
    ("predictions.md", "How far to trust it"),
    ("simulate.md", "CSV"),
    ("simulate.md", "Figures"),
    ("task-schema.md", "Ways to write a value"),
    *(
        ("troubleshooting.md", section)
        for section in (
            "A task does not start",
            "A task fails",
            "A suspension does not work",
            "The platform does not answer",
            "Workspaces, environments, notebooks",
        )
    ),
    *(("tui.md", section) for section in ("The terminal app: hai tui", "Tasks", "Filters", "Logs")),
    ("tui-lists.md", "The terminal app: lists"),
    ("workspaces.md", "All the time: watch"),
}
"""Tables that name nothing of the code by itself, or keys, columns and figures."""


def _id(claim: Claim) -> str:
    return "-".join(filter(None, (claim.page, claim.section, claim.header, claim.row)))


@pytest.mark.parametrize("claim", CLAIMS, ids=_id)
def test_the_manual_names_what_there_is(claim: Claim) -> None:
    named, known = claim.named(), set(claim.in_code())
    assert named, "no such table or column"
    assert {name for name in named if name not in known} == set(), "only in the manual"
    if claim.complete:
        assert known - set(named) == set(), "not in the manual"


def test_every_table_of_the_manual_is_compared_or_is_prose() -> None:
    there = [(page, table) for page in sorted(DOCS.glob("*.md")) for table in tables(page)]
    unknown = {
        (page.name, table.section, table.header)
        for page, table in there
        if (page.name, table.section) not in PROSE
        and not any(claim.page == page.name and claim.is_about(table) for claim in CLAIMS)
    }
    assert unknown == set()
    assert {(page.name, table.section) for page, table in there} >= PROSE


def test_the_reference_names_all_options_of_each_command() -> None:
    rows = tables(DOCS / "reference.md")[0].rows
    named = {
        (path, option)
        for paths_of_row, options in rows
        for path in code_spans(paths_of_row)
        for option in re.findall(OPTION, " ".join(code_spans(options)))
    }
    common = {name for option in (*COMMON, *TABLE) for name in option.opts}
    known = {
        (path, option)
        for path, _ in _commands(make_root())
        for option in _options(path)
        if option not in common or path == "simulate"
    }
    assert named - known == set(), "only in the manual"
    assert known - named == set(), "not in the manual"


@pytest.mark.parametrize(
    ("section", "kind"), [("Settings", Settings), ("Pods instead of processes", Options)]
)
def test_defaults_are_those_of_the_code(section: str, kind: type) -> None:
    """Where the manual writes a default as in TOML; elsewhere it describes it."""
    rows = [row for t in tables(DOCS / "operate.md") if t.section == section for row in t.rows]
    told = {
        name: tomllib.loads(f"it = {value}")["it"]
        for names, defaults, _ in rows
        if len(code_spans(names)) == len(code_spans(defaults))
        for name, value in zip(code_spans(names), code_spans(defaults), strict=True)
        if re.fullmatch(r'\d+(\.\d+)?|true|false|"[^"]*"', value)
    }
    ours = {f.name: f.default for f in fields(kind) if f.default is not MISSING and f.name in told}
    assert len(ours) > 3
    assert {name: told[name] for name in ours} == ours


def test_defaults_of_scheduling_are_those_of_the_code() -> None:
    found = next(t for t in tables(DOCS / "operate.md") if t.section == "Scheduling of a group")
    told = {row[0].strip("`"): row[1].strip("`") for row in found.rows}
    assert told == {
        "default_quota": "unlimited",
        **settings_text(policy_to_proto(to_mapping(Policy()))),
    }
