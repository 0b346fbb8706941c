"""Lists of a spec as lines of a form, a part a line: `SEED=7`, `board http 6006 tensorboard`, `12:ended`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hai.client.errors import Violation
from hai.v1.task_spec_pb2 import AfterSpec, ServiceSpec, TaskSpec
from hai_tui.i18n import text

VARIABLES, SERVICES, AFTER = "spec.environments", "services", "options.after"
LISTS = (VARIABLES, SERVICES, AFTER)
"""Paths whose parts have a line each."""

_FIRST = re.compile(
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


def rows(spec: TaskSpec, path: str) -> list[str]:
    """What stands in the lines of a list."""
    if path == VARIABLES:
        return [f"{name}={value}" for name, value in sorted(spec.spec.environments.items())]
    if path == AFTER:
        return [f"{a.task}:{a.outcome}" if a.outcome else str(a.task) for a in spec.options.after]
    return [_service_line(service) for service in spec.services]


def put(spec: TaskSpec, path: str, lines: Sequence[str]) -> tuple[Violation, ...]:
    """Let the lines be the list; what is wrong with them."""
    filled = [line for line in lines if line.strip()]
    if path == SERVICES:
        del spec.services[:]
        spec.services.extend(_service(line) for line in filled)
        return ()
    if path == AFTER:
        return _put_after(spec, filled)
    pairs = [_variable(line) for line in filled]
    spec.spec.environments.clear()
    spec.spec.environments.update(pairs)
    return tuple(_twice([name for name, _ in pairs]))


def _put_after(spec: TaskSpec, filled: Sequence[str]) -> tuple[Violation, ...]:
    found = [_FIRST.fullmatch(line) for line in filled]
    if not all(found):
        unread = (i for i, match in enumerate(found) if not match)
        return tuple(Violation(f"{AFTER}[{i}]", text("submit.unread.after")) for i in unread)
    firsts = [AfterSpec(task=int(m["task"]), outcome=m["outcome"] or "") for m in found if m]
    del spec.options.after[:]
    spec.options.after.extend(firsts)
    return ()


def paths(path: str, lines: Sequence[str]) -> list[str]:
    """How what is wrong with each line is addressed; empty lines are nothing."""
    found, index = [], 0
    for line in lines:
        if not line.strip():
            found.append("")
        elif path == VARIABLES:
            found.append(_address(_variable(line)[0]))
        else:
            found.append(f"{path}[{index}]")
        index += bool(line.strip())
    return found


def _variable(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name.strip(), value


def _twice(names: Sequence[str]) -> Iterator[Violation]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Violation(_address(name), f"{name} stands there twice")


def _address(name: str) -> str:
    """As the server writes it."""
    return f"{VARIABLES}[{name[:64]}]"


def _service(line: str) -> ServiceSpec:
    found = _SERVICE.fullmatch(line)
    assert found is not None  # a line with any sign begins with a name
    port = int(found["port"] or 0)
    return ServiceSpec(
        name=found["name"],
        type=found["type"] or ("http" if port else ""),
        port=port,
        rank=[int(rank) for rank in (found["rank"] or "").split(",") if rank],
        rewrite_uri=found["rewrite"] is not None,
        startup_script=found["script"],
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
    plain = f"{head} {service.startup_script}".rstrip()
    misread = _service(plain).startup_script != service.startup_script
    return f"{head} -- {service.startup_script}" if misread else plain
