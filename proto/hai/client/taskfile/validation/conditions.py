"""Rules about several fields of a task spec, and the validator of a whole spec.

A field is compared with others only if it is valid by itself, so that one mistake gives one violation.
"""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from posixpath import splitext

from google.protobuf.message import Message

from hai.client.errors import Violation
from hai.client.taskfile.validation import limits
from hai.client.taskfile.validation.rules import check_fields
from hai.client.taskfile.validation.violations import Violations, quote_shortened
from hai.redaction import MASK, is_redacted
from hai.v1.task_spec_pb2 import RoleSpec, ServiceSpec, TaskSpec

BUILT_IN_SERVICE = "jupyter"
CONTAINER = "jupyter"
CONTAINER_OPTIONS = ("idle_timeout", "lifetime")
SUFFIXES = (".py", ".sh")

_NO_SSHD = (
    "ssh is not built in: nothing here starts an sshd; leave it out and use `hai shell`, or start the sshd of "
    "your image: type tcp, a port, and a startup_script"
)
_ONLY_CONTAINERS = f"is for dev containers only (task_type {CONTAINER})"


def violations(spec: TaskSpec, known: Iterable[Violation] = ()) -> list[Violation]:
    """Return every violation of a spec that can be found without a server.

    `known` has the violations that its reader found. No others are reported about those fields.
    """
    found = Violations(known)
    if spec.ByteSize() > limits.SPEC_BYTES:
        found.add(
            "", f"the spec has {spec.ByteSize()} bytes; at most {limits.SPEC_BYTES} are allowed"
        )
        return list(found)
    for each in single_violations(spec):
        if found.ok(each.field):
            found.add(each.field, each.message)
    check_conditions(spec, found)
    check_combinations(spec, found)
    return list(found)


def single_violations(spec: TaskSpec) -> list[Violation]:
    """Return the violations of rules about single fields."""
    found = Violations()
    check_fields(spec, "", found)
    return list(found)


# Rules that the JSON schema has too.


def check_conditions(spec: TaskSpec, found: Violations) -> None:
    """Add violations of conditions on another field of the same mapping, or on the task type."""
    _check_entrypoint("spec.entrypoint", spec.spec.entrypoint, spec, found)
    for index, service in enumerate(spec.services):
        _check_service(f"services[{index}]", service, found)
    if spec.task_type != CONTAINER and found.ok("task_type"):
        if spec.resource.is_spot:
            found.add("resource.is_spot", _ONLY_CONTAINERS)
        for name in CONTAINER_OPTIONS:
            if getattr(spec.options, name) and found.ok(f"options.{name}"):
                found.add(f"options.{name}", _ONLY_CONTAINERS)


def _check_entrypoint(path: str, value: str, spec: TaskSpec, found: Violations) -> None:
    executable = spec.spec.entrypoint_executable
    if executable or not value or not found.ok(path, "spec.entrypoint_executable"):
        return
    if splitext(value)[1] not in SUFFIXES:
        tail = repr(value[-40:])
        found.add(path, f"{tail} must end in .py or .sh, or entrypoint_executable must be set")


def _check_service(path: str, service: ServiceSpec, found: Violations) -> None:
    """Check a service: jupyter is built in, all others need a type."""
    if not found.ok(f"{path}.type"):
        return
    if service.name == BUILT_IN_SERVICE:
        for field, _ in service.ListFields():
            if field.name != "name" and found.ok(f"{path}.{field.name}"):
                found.add(f"{path}.{field.name}", f"may not be set: {service.name} is built in")
    elif not service.type:
        ssh = service.name == "ssh"  # HAI's task files have this service
        found.add(
            f"{path}.name" if ssh else f"{path}.type",
            _NO_SSHD if ssh else "is required: http, tcp or local",
        )
    elif found.ok(f"{path}.port", f"{path}.rank", f"{path}.rewrite_uri"):
        _check_custom_service(path, service, found)


def _check_custom_service(path: str, service: ServiceSpec, found: Violations) -> None:
    """Check the port and ranks of a service that is not built in."""
    local = service.type == "local"
    if local and service.port:
        found.add(f"{path}.port", "may not be set for a local service")
    if not local and not service.port:
        found.add(f"{path}.port", f"is required: from 1 to {limits.PORT}")
    if not local and list(service.rank) not in ([], [0]):
        found.add(f"{path}.rank", "must be [0] unless the service is local")
    if service.rewrite_uri and service.type != "http":
        found.add(f"{path}.rewrite_uri", "is for http services only")


# Rules that no JSON schema can express.


def check_combinations(spec: TaskSpec, found: Violations) -> None:
    """Add violations that only a comparison of values shows."""
    if MASK.encode() in spec.SerializeToString():
        _check_redacted("", spec, found)
    _check_program(spec, found)
    _check_variables("spec.environments", spec.spec.environments, found)
    _check_services(spec.services, found)
    if spec.options.record_git_revision and spec.spec.git_remote_repo:
        found.add("options.record_git_revision", "excludes spec.git_remote_repo; leave one out")
    predecessor_ids = [after.task for after in spec.options.after]
    if len(set(predecessor_ids)) != len(predecessor_ids) and found.ok("options.after"):
        found.add("options.after", "names a task twice")
    if len(spec.roles) <= limits.ROLES:
        _check_roles(spec, found)
    if found.ok("resource.node_count", "roles"):
        _check_rank_numbers(spec, node_count(spec), found)


def _check_redacted(path: str, part: object, found: Violations) -> None:
    """Report redacted secrets, which a task has that was described and is submitted again."""
    if isinstance(part, str) and is_redacted(part):
        found.add(path, f"has {MASK} in place of a password or token, which is not shown: write it")
    elif isinstance(part, Message):
        for field, value in part.ListFields():
            _check_redacted(f"{path}.{field.name}" if path else field.name, value, found)
    elif isinstance(part, Mapping):
        for name, value in part.items():
            _check_redacted(f"{path}[{name}]", value, found)
    elif isinstance(part, Sequence) and not isinstance(part, str | bytes):
        for index, value in enumerate(part):
            _check_redacted(f"{path}[{index}]", value, found)


def node_count(spec: TaskSpec) -> int:
    """Return the number of ranks of a task."""
    if spec.resource.HasField("node_count"):
        return spec.resource.node_count
    return max(1, sum(role.count for role in spec.roles))


def _check_program(spec: TaskSpec, found: Violations) -> None:
    program = spec.spec
    command = [program.workspace, program.entrypoint, *program.parameters]
    length = sum(map(len, command)) + len(command) - 1
    if length > limits.COMMAND_CHARS and found.ok("spec.workspace", "spec.entrypoint"):
        found.add(
            "spec.parameters",
            f"workspace, entrypoint and parameters together have {length} characters; "
            f"at most {limits.COMMAND_CHARS} are allowed",
        )
    if found.ok("spec.workspace"):
        _check_workspace(program.workspace, bool(program.git_remote_repo), found)
    if program.git_target_revision and not program.git_remote_repo:
        found.add("spec.git_target_revision", "needs spec.git_remote_repo")


def _check_workspace(workspace: str, is_cloned: bool, found: Violations) -> None:
    if workspace and is_cloned:
        found.add(
            "spec.workspace",
            "excludes spec.git_remote_repo: the clone is the workspace; leave one out",
        )
    if not workspace.startswith("haiworkspace://"):
        return
    if not unicodedata.is_normalized("NFC", workspace):
        found.add("spec.workspace", "must be in Unicode normal form NFC")
    if any(len(part.encode()) > limits.PART_BYTES for part in workspace.split("/")):
        found.add("spec.workspace", f"has a part of more than {limits.PART_BYTES} bytes")


def _check_variables(path: str, values: Mapping[str, str], found: Violations) -> None:
    for name, value in values.items():
        if len(name.encode()) + len(value.encode()) + 1 > limits.VALUE_BYTES:
            message = f"is longer than {limits.VALUE_BYTES} bytes, more than a program can receive"
            found.add(f"{path}[{name[:64]}]", message)


def _check_services(services: Sequence[ServiceSpec], found: Violations) -> None:
    if len(services) > limits.SERVICES:
        return
    _check_duplicates("services", "name", [service.name for service in services], found)
    ports: set[int] = set()
    for index, service in enumerate(services):
        path = f"services[{index}]"
        port = 8888 if service.name == BUILT_IN_SERVICE else service.port
        if port in ports and found.ok(f"{path}.port"):
            found.add(f"{path}.port", f"{port} is taken by another service of this task")
        ports |= {port} - {0}
        if found.ok(f"{path}.startup_script"):
            _check_script(f"{path}.startup_script", service.startup_script, found)


def _check_duplicates(path: str, field: str, names: Sequence[str], found: Violations) -> None:
    checked_names: set[str] = set()
    for index, name in enumerate(names):
        if name in checked_names and found.ok(f"{path}[{index}].{field}"):
            found.add(f"{path}[{index}].{field}", f"{quote_shortened(name)} is given twice")
        checked_names.add(name)


def _check_script(path: str, script: str, found: Violations) -> None:
    try:
        shlex.split(script)
    except ValueError as error:
        found.add(path, f"is no command: {str(error).lower()}")


def _check_roles(spec: TaskSpec, found: Violations) -> None:
    counts = [f"roles[{index}].count" for index in range(len(spec.roles))]
    if counts and found.ok("resource.node_count", *counts):
        _check_ranks(spec, sum(role.count for role in spec.roles), found)
    _check_duplicates("roles", "name", [role.name for role in spec.roles], found)
    for index, role in enumerate(spec.roles):
        _check_role(f"roles[{index}]", role, spec, found)


def _check_ranks(spec: TaskSpec, ranks: int, found: Violations) -> None:
    if ranks > limits.NODES:
        found.add("roles", f"have {ranks} ranks together; at most {limits.NODES} are allowed")
    elif spec.resource.HasField("node_count") and ranks != spec.resource.node_count:
        wanted = spec.resource.node_count
        found.add("roles", f"have {ranks} ranks together, but resource.node_count is {wanted}")


def _check_role(path: str, role: RoleSpec, spec: TaskSpec, found: Violations) -> None:
    _check_entrypoint(f"{path}.entrypoint", role.entrypoint, spec, found)
    _check_variables(f"{path}.environments", role.environments, found)


def _check_rank_numbers(spec: TaskSpec, count: int, found: Violations) -> None:
    if spec.policies.min_available > count and found.ok("policies.min_available"):
        found.add("policies.min_available", f"must be from 0 to {count}, the number of ranks")
    for index, service in enumerate(spec.services):
        path = f"services[{index}].rank"
        if service.type == "local" and max(service.rank, default=0) >= count and found.ok(path):
            found.add(path, f"must name ranks from 0 to {count - 1}")
