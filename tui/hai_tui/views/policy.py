"""Scheduling settings of a group as they are typed and shown: `staying=2`, `demotion=ABOVE_NORMAL:NORMAL:30m`.

Names and kinds come from the contract; what a value may be is the server's to judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from hai.task.levels import PRIORITIES
from hai_tui.formatting.values import Priority, priority_name, seconds, span

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hai.v1.policy_pb2 import SchedulingPolicy

Pair = tuple[str, str]

NAMES: dict[str, str] = {
    "ranking": "learned, attained or submitted",
    "demotion": "LEVEL:LOWER:TIME,… or none",
    "time_slices": "yes or no",
    "staying": "a number from 1",
    "overhead_share": "a number below 1",
    "minimum_seconds": "a time, such as 15m",
    "urgent": "a level",
    "daily_suspensions": "a number",
    "patience_seconds": "a time",
    "lifted_to": "a level",
    "default_quota": "nodes, or unlimited",
    "auto_level_when_unlimited": "a level",
    "restart_seconds": "a time",
    "relearn_seconds": "a time",
    "ahead_limit": "a number",
}
"""Settings, and what is typed for them. The contract is not loaded for help; a test holds this table against it."""

_LEVELS = ("urgent", "lifted_to", "auto_level_when_unlimited")
_RANKINGS = ("learned", "attained", "submitted")
_FLAGS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_CHOICES: dict[str, Iterable[str]] = {
    "ranking": _RANKINGS,
    "time_slices": ("yes", "no"),
    "default_quota": ("unlimited",),
    "demotion": ("none",),
    **dict.fromkeys(_LEVELS, tuple(name for name in PRIORITIES if name != "AUTO")),
}


class Name(click.ParamType[str]):
    """The name of a setting."""

    name = "setting"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; a wrong one is told with the nearest."""
        if value not in NAMES:
            matches = get_close_matches(value, NAMES, n=1)
            suggestion = (
                f"did you mean {matches[0]}?" if matches else f"there are {', '.join(NAMES)}"
            )
            self.fail(f"there is no setting {value!r}; {suggestion}", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(n, help=h) for n, h in NAMES.items() if n.startswith(incomplete)]


class Setting(click.ParamType[Pair]):
    """`name=value`."""

    name = "setting=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Pair:
        """Name and value, the latter not read yet."""
        if isinstance(value, tuple):
            return value
        name, equals, written = value.partition("=")
        if not equals:
            self.fail(f"{value!r} is no setting; write one as staying=2", param, ctx)
        return Name().convert(name, param, ctx), written

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names with their `=`; behind it, the words that are known."""
        from click.shell_completion import CompletionItem

        name, equals, _ = incomplete.partition("=")
        if not equals:
            return [CompletionItem(f"{n}=", help=h) for n, h in NAMES.items() if n.startswith(name)]
        offers = (f"{name}={keyword}" for keyword in _CHOICES.get(name, ()))
        return [CompletionItem(offer) for offer in offers if offer.startswith(incomplete)]


def policy_of(pairs: Iterable[Pair]) -> SchedulingPolicy:
    """The message of what was typed. Raises BadParameter."""
    from hai.v1.policy_pb2 import Ranking, SchedulingPolicy

    policy = SchedulingPolicy()
    for name, written in pairs:
        if name == "demotion":
            policy.demotion.CopyFrom(_demotions(written))
        elif name == "ranking":
            keyword = _choice(name, written.lower(), {keyword: keyword for keyword in _RANKINGS})
            policy.ranking = Ranking.Value(f"RANKING_{keyword.upper()}")
        else:
            _set(policy, name, written)
    return policy


def _set(policy: SchedulingPolicy, name: str, written: str) -> None:
    try:
        setattr(policy, name, _value(name, written))
    except ValueError:  # no number, or too large for the contract
        raise click.BadParameter(f"{name} is {NAMES[name]}, not {written!r}") from None


def _value(name: str, written: str) -> Any:
    if name in _LEVELS:
        return Priority().convert(written, None, None)
    if name == "time_slices":
        return _choice(name, written.lower(), _FLAGS)
    if name.endswith("_seconds"):
        return seconds(written)
    if name == "default_quota" and written == "unlimited":
        return -1
    return float(written) if name in ("staying", "overhead_share") else int(written)


def _choice(name: str, written: str, choices: dict[str, Any]) -> Any:
    if written not in choices:
        raise click.BadParameter(f"{name} is {NAMES[name]}, not {written!r}")
    return choices[written]


def _demotions(written: str) -> Any:
    from hai.v1.policy_pb2 import Demotion, Demotions

    rows = []
    for part in [] if written == "none" else written.split(","):
        words = part.split(":")
        if len(words) != 3:
            raise click.BadParameter(f"demotion is {NAMES['demotion']}, not {part!r}")
        level, to = (Priority().convert(keyword, None, None) for keyword in words[:2])
        rows.append(Demotion(priority=level, to=to, after_seconds=seconds(words[2])))
    return Demotions(rows=rows)


def settings_of(policy: SchedulingPolicy) -> dict[str, str]:
    """What is set, as it would be typed."""
    return {field.name: _setting_text(field.name, value) for field, value in policy.ListFields()}


def _setting_text(name: str, value: Any) -> str:
    if name == "demotion":
        rows = (
            f"{priority_name(r.priority)}:{priority_name(r.to)}:{_time(r.after_seconds)}"
            for r in value.rows
        )
        return ",".join(rows) or "none"
    if name == "ranking":
        return _RANKINGS[value - 1] if 0 < value <= len(_RANKINGS) else str(value)
    if name in _LEVELS:
        return priority_name(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_seconds"):
        return _time(value)
    return "unlimited" if name == "default_quota" and value < 0 else f"{value:g}"


def _time(value: float) -> str:
    """A span when it says all of it."""
    short = span(value)
    return short if seconds(short) == value else f"{value:g}"
