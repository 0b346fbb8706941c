"""Rules for what runs: entrypoint, parameters, variables, repository."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from posixpath import splitext

from hai.task import env
from hai.v1 import task_spec_pb2 as pb
from hai_backend.domain.spec import ProgramSpec
from hai_backend.domain.workspace import parse_reference
from hai_backend.services import limits
from hai_backend.services.rules import Rules

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLANK = re.compile(r"\s")
_OURS = frozenset({env.CONTROL_FILE, env.AGENT_SOCKET, env.RANK_KEY})


def program(spec: pb.ProgramSpec, rules: Rules) -> ProgramSpec:
    """spec.*"""
    workspace = _workspace(spec, rules)
    entry = entrypoint("spec.entrypoint", spec.entrypoint, spec.entrypoint_executable, rules)
    arguments = parameters("spec.parameters", spec.parameters, rules)
    length = len(workspace) + len(entry) + sum(map(len, arguments)) + len(arguments) + 1
    if length > limits.COMMAND_CHARS:
        what = "workspace, entrypoint and parameters together have"
        rules.add(
            "spec.parameters",
            f"{what} {length} characters; at most {limits.COMMAND_CHARS} are allowed",
        )
    return ProgramSpec(
        entrypoint=entry,
        workspace=workspace,
        parameters=arguments,
        environments=environments("spec.environments", spec.environments, rules),
        entrypoint_executable=spec.entrypoint_executable,
        git_remote_repo=_repository(spec, rules),
        git_target_revision=_revision(spec, rules),
    )


def entrypoint(field: str, value: str, executable: bool, rules: Rules) -> str:
    """A .py or .sh file, or any program."""
    if not value.strip():
        rules.add(
            field, "is required: a .py file, a .sh file, or with entrypoint_executable any program"
        )
    elif not executable and splitext(value)[1] not in (".py", ".sh"):
        rules.add(
            field, f"{value[-40:]!r} must end in .py or .sh, or entrypoint_executable must be set"
        )
    elif value.startswith("-"):
        rules.add(field, "may not begin with a hyphen; write ./ before it")
    return rules.text(field, value, limits.COMMAND_CHARS)


def parameters(field: str, values: Sequence[str], rules: Rules) -> tuple[str, ...]:
    """Arguments reach the program unchanged, so everything but NUL is allowed."""
    if "\0" in "".join(values):
        for i, value in enumerate(values):
            rules.text(f"{field}[{i}]", value, limits.SPEC_BYTES)
    return tuple(values)


def environments(field: str, values: Mapping[str, str], rules: Rules) -> dict[str, str]:
    """Variables; values reach the program unchanged."""
    if not values:
        return {}
    for name, value in values.items():
        path = f"{field}[{name[:64]}]"
        rules.matching(
            path, name, _VARIABLE, "a variable's name: letters, digits and _, no digit first"
        )
        if name in _OURS:
            rules.add(path, "is set by the platform itself; choose another name")
        if "\0" in value:
            rules.add(path, "contains a NUL byte, which no program can receive")
        if len(name.encode()) + len(value.encode()) + 1 > limits.VALUE_BYTES:
            rules.add(
                path, f"is longer than {limits.VALUE_BYTES} bytes, more than a program can receive"
            )
    return dict(values)


def _workspace(spec: pb.ProgramSpec, rules: Rules) -> str:
    if _BLANK.search(spec.workspace):
        rules.add("spec.workspace", "may not contain blanks")
    try:
        parse_reference(spec.workspace)
    except ValueError as error:
        rules.add("spec.workspace", str(error))
    if spec.workspace and spec.git_remote_repo:
        rules.add(
            "spec.workspace",
            "excludes spec.git_remote_repo: the clone is the workspace; leave one out",
        )
    return rules.text("spec.workspace", spec.workspace, limits.WORKSPACE_CHARS)


def _repository(spec: pb.ProgramSpec, rules: Rules) -> str:
    url = spec.git_remote_repo
    if not url:
        return ""
    if url.startswith("-") or "::" in url or _BLANK.search(url):
        rules.add("spec.git_remote_repo", "must be the address of a git repository, without blanks")
    return rules.text("spec.git_remote_repo", url, limits.URL_CHARS)


def _revision(spec: pb.ProgramSpec, rules: Rules) -> str:
    revision = spec.git_target_revision
    if not revision:
        return ""
    if not spec.git_remote_repo:
        rules.add("spec.git_target_revision", "needs spec.git_remote_repo")
    if revision.startswith("-") or _BLANK.search(revision):
        rules.add("spec.git_target_revision", "must be a branch, tag or commit, without blanks")
    return rules.text("spec.git_target_revision", revision, limits.IMAGE_CHARS)
