"""Scheduling settings of a group as users type them: `staying=2`, `demotion=ABOVE_NORMAL:NORMAL:30m`.

The contract defines the names and types of the settings; the server checks the values.
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

SETTING_HINTS: dict[str, str] = {
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
"""What a user types for each setting. Help does not load the contract, so a test compares this table with it."""

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


class SettingNameType(click.ParamType[str]):
    """A parameter that is the name of a setting."""

    name = "setting"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the name; suggest the nearest one for a wrong name."""
        if value not in SETTING_HINTS:
            matches = get_close_matches(value, SETTING_HINTS, n=1)
            suggestion = (
                f"did you mean {matches[0]}?"
                if matches
                else f"there are {', '.join(SETTING_HINTS)}"
            )
            self.fail(f"there is no setting {value!r}; {suggestion}", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the names."""
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(n, help=h) for n, h in SETTING_HINTS.items() if n.startswith(incomplete)
        ]


class SettingType(click.ParamType[Pair]):
    """A parameter of the form `name=value`."""

    name = "setting=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Pair:
        """Split name and value; the value is parsed later."""
        if isinstance(value, tuple):
            return value
        name, equals, value_text = value.partition("=")
        if not equals:
            self.fail(f"{value!r} is no setting; write one as staying=2", param, ctx)
        return SettingNameType().convert(name, param, ctx), value_text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the names with `=`, and after it the words that the setting takes."""
        from click.shell_completion import CompletionItem

        name, equals, _ = incomplete.partition("=")
        if not equals:
            return [
                CompletionItem(f"{n}=", help=h)
                for n, h in SETTING_HINTS.items()
                if n.startswith(name)
            ]
        settings = (f"{name}={keyword}" for keyword in _CHOICES.get(name, ()))
        return [CompletionItem(s) for s in settings if s.startswith(incomplete)]


def parse_policy(pairs: Iterable[Pair]) -> SchedulingPolicy:
    """Return the message that the pairs describe. Raises BadParameter."""
    from hai.v1.policy_pb2 import Ranking, SchedulingPolicy

    policy = SchedulingPolicy()
    for name, value_text in pairs:
        if name == "demotion":
            policy.demotion.CopyFrom(_demotions(value_text))
        elif name == "ranking":
            keyword = _choice(name, value_text.lower(), {keyword: keyword for keyword in _RANKINGS})
            policy.ranking = Ranking.Value(f"RANKING_{keyword.upper()}")
        else:
            _set(policy, name, value_text)
    return policy


def _set(policy: SchedulingPolicy, name: str, value_text: str) -> None:
    try:
        setattr(policy, name, _value(name, value_text))
    except ValueError:  # not a number, or too large for the contract
        raise click.BadParameter(f"{name} is {SETTING_HINTS[name]}, not {value_text!r}") from None


def _value(name: str, value_text: str) -> Any:
    if name in _LEVELS:
        return Priority().convert(value_text, None, None)
    if name == "time_slices":
        return _choice(name, value_text.lower(), _FLAGS)
    if name.endswith("_seconds"):
        return seconds(value_text)
    if name == "default_quota" and value_text == "unlimited":
        return -1
    return float(value_text) if name in ("staying", "overhead_share") else int(value_text)


def _choice(name: str, value_text: str, choices: dict[str, Any]) -> Any:
    if value_text not in choices:
        raise click.BadParameter(f"{name} is {SETTING_HINTS[name]}, not {value_text!r}")
    return choices[value_text]


def _demotions(value_text: str) -> Any:
    from hai.v1.policy_pb2 import Demotion, Demotions

    rows = []
    for part in [] if value_text == "none" else value_text.split(","):
        words = part.split(":")
        if len(words) != 3:
            raise click.BadParameter(f"demotion is {SETTING_HINTS['demotion']}, not {part!r}")
        level, to = (Priority().convert(keyword, None, None) for keyword in words[:2])
        rows.append(Demotion(priority=level, to=to, after_seconds=seconds(words[2])))
    return Demotions(rows=rows)


def settings_text(policy: SchedulingPolicy) -> dict[str, str]:
    """Return the settings of the policy as users would type them."""
    return {field.name: _setting_text(field.name, value) for field, value in policy.ListFields()}


def _setting_text(name: str, value: Any) -> str:
    if name == "demotion":
        rows = (
            f"{priority_name(r.priority)}:{priority_name(r.to)}:{_duration(r.after_seconds)}"
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
        return _duration(value)
    return "unlimited" if name == "default_quota" and value < 0 else f"{value:g}"


def _duration(value: float) -> str:
    """Return a rounded span such as 15m if it is exact, else the number of seconds."""
    rounded = span(value)
    return rounded if seconds(rounded) == value else f"{value:g}"
