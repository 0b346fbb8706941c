"""Lists of a spec as lines of a form, one line for each element. Does no input or output.

Examples: `SEED=7` (a variable), `board http 6006 tensorboard` (a service), `12:ended` (a task to wait for).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hai.client.errors import Violation
from hai.v1.task_spec_pb2 import AfterSpec, ServiceSpec, TaskSpec
from hai_tui.i18n import text

VARIABLES, SERVICES, AFTER = "spec.environments", "services", "options.after"
LISTS = (VARIABLES, SERVICES, AFTER)
"""Paths of the lists; each element has a line of its own."""

_DEPENDENCY = re.compile(
    r"\s*(?P<task>\d{1,18})\s*(?::\s*(?P<outcome>succeeded|failed|ended)\s*)?", re.ASCII
)
_SERVICE = re.compile(
    r"""\s* (?P<name>\S+)
    (?: \s+ (?P<type>http|tcp|local) (?=\s|$) )?
    (?: \s+ (?P<port>\d{1,9}) (?=\s|$) )?
    (?: \s+ rank=(?P<rank>\d{1,6}(?:,\d{1,6})*) (?=\s|$) )?
    (?P<rewrite> \s+ rewrite (?=\s|$) )?
    (?: \s+ -- (?=\s|$) )?
    \s* (?P<script>.*)""",
    re.VERBOSE | re.DOTALL,
)


def get_lines(spec: TaskSpec, path: str) -> list[str]:
    """Return the lines of a list."""
    if path == VARIABLES:
        return [f"{name}={value}" for name, value in sorted(spec.spec.environments.items())]
    if path == AFTER:
        return [f"{a.task}:{a.outcome}" if a.outcome else str(a.task) for a in spec.options.after]
    return [_service_line(service) for service in spec.services]


def set_lines(spec: TaskSpec, path: str, lines: Sequence[str]) -> tuple[Violation, ...]:
    """Replace the list by the elements that the lines describe; return what is wrong with the lines."""
    filled = [line for line in lines if line.strip()]
    if path == SERVICES:
        del spec.services[:]
        spec.services.extend(_parse_service(line) for line in filled)
        return ()
    if path == AFTER:
        return _set_dependencies(spec, filled)
    pairs = [_parse_variable(line) for line in filled]
    spec.spec.environments.clear()
    spec.spec.environments.update(pairs)
    return tuple(_duplicate_violations([name for name, _ in pairs]))


def _set_dependencies(spec: TaskSpec, lines: Sequence[str]) -> tuple[Violation, ...]:
    matches = [_DEPENDENCY.fullmatch(line) for line in lines]
    if not all(matches):
        unread = (i for i, match in enumerate(matches) if not match)
        return tuple(Violation(f"{AFTER}[{i}]", text("submit.unread.after")) for i in unread)
    after = [AfterSpec(task=int(m["task"]), outcome=m["outcome"] or "") for m in matches if m]
    del spec.options.after[:]
    spec.options.after.extend(after)
    return ()


def violation_paths(path: str, lines: Sequence[str]) -> list[str]:
    """Return for each line the path that violations of it have; empty for an empty line."""
    paths, index = [], 0
    for line in lines:
        if not line.strip():
            paths.append("")
        elif path == VARIABLES:
            paths.append(_variable_path(_parse_variable(line)[0]))
        else:
            paths.append(f"{path}[{index}]")
        index += bool(line.strip())
    return paths


def _parse_variable(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name.strip(), value


def _duplicate_violations(names: Sequence[str]) -> Iterator[Violation]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Violation(_variable_path(name), f"{name} stands there twice")


def _variable_path(name: str) -> str:
    """Return the path that the server writes in a violation of a variable."""
    return f"{VARIABLES}[{name[:64]}]"


def _parse_service(line: str) -> ServiceSpec:
    match = _SERVICE.fullmatch(line)
    assert match is not None  # the first word of a line is a name, whatever it is
    port = int(match["port"] or 0)
    return ServiceSpec(
        name=match["name"],
        type=match["type"] or ("http" if port else ""),
        port=port,
        rank=[int(rank) for rank in (match["rank"] or "").split(",") if rank],
        rewrite_uri=match["rewrite"] is not None,
        startup_script=match["script"],
    )


def _service_line(service: ServiceSpec) -> str:
    ranks = ",".join(map(str, service.rank))
    parts = [
        service.name,
        service.type,
        str(service.port or ""),
        ranks and f"rank={ranks}",
        "rewrite" if service.rewrite_uri else "",
    ]
    head = " ".join(part for part in parts if part)
    line = f"{head} {service.startup_script}".rstrip()
    is_ambiguous = _parse_service(line).startup_script != service.startup_script
    return f"{head} -- {service.startup_script}" if is_ambiguous else line
