"""Decides which paths are ignored, by the rules of git.

Ignore files (.gitignore, .haiignore, .hfignore) apply to their directory and below. A deeper file takes precedence
over a higher one, a later line over an earlier one, and `!` includes a path again. Nothing inside an ignored
directory is included again, so that a walk need not enter it. A pattern is compared with the path itself, never with
a directory above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from hai_sync.core.entry import ancestors, parent
from hai_sync.core.names import is_private
from hai_sync.core.wildmatch import Pattern, as_bytes, parse

RULE_FILES = (".gitignore", ".haiignore", ".hfignore")
"""The names of ignore files in the order of increasing precedence."""

DEFAULT_PATTERNS = (
    *(".git", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", "node_modules/", "wandb/"),
    *(
        ".idea/",
        ".vscode/",
        ".ipynb_checkpoints/",
        ".mypy_cache/",
        ".pytest_cache/",
        ".ruff_cache/",
    ),
    *(".DS_Store", "Thumbs.db", "*.swp", "*~", ".#*"),
)
"""Patterns with the lowest precedence, so that an ignore file can include their paths again."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an ignore file."""

    source: str  # the file, or "defaults"
    line: int
    text: str
    pattern: Pattern
    regex: re.Pattern[str]

    @property
    def negated(self) -> bool:
        """Whether the rule includes paths again that an earlier line ignores."""
        return self.pattern.negated

    def matches(self, path: str, is_directory: bool) -> bool:
        """Return whether the rule matches a path, which has one character for each byte."""
        if self.pattern.directories_only and not is_directory:
            return False
        text = _last_part(path) if self.pattern.name_only else path
        return self.regex.fullmatch(text) is not None


class RuleSet:
    """The rules of one directory. The last matching rule decides.

    The rules are parsed on first use, which never comes if nothing has changed.
    """

    def __init__(self, texts: Iterable[tuple[str, Iterable[str]]]) -> None:
        self._texts = texts

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in the order of their files and lines."""
        return tuple(rule for source, lines in self._texts for rule in _read(source, lines))

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
        """One joined pattern for names and one for paths. Most paths match neither, and need no search through the
        rules.
        """
        patterns = [rule.pattern for rule in self.rules]
        return (
            _any_of([each.regex for each in patterns if each.name_only]),
            _any_of([each.regex for each in patterns if not each.name_only]),
        )

    def find(self, path: str, is_directory: bool) -> Rule | None:
        """Return the rule that decides about a path, relative to this directory."""
        names, paths = self._patterns
        path = as_bytes(path)
        matches = names is not None and names.fullmatch(_last_part(path)) is not None
        if not matches and (paths is None or paths.fullmatch(path) is None):
            return None
        return next((r for r in reversed(self.rules) if r.matches(path, is_directory)), None)


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]


def _any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{p})" for p in patterns), re.DOTALL) if patterns else None


def _read(source: str, lines: Iterable[str]) -> Iterable[Rule]:
    for number, line in enumerate(lines, 1):
        text = line.removesuffix("\n").removesuffix("\r")
        pattern = parse(text)
        if pattern is not None:
            regex = re.compile(pattern.regex, re.DOTALL)
            yield Rule(source, number, text, pattern, regex)


@dataclass(slots=True)
class Ignore:
    """The rules of a tree. `forced` has those of the command line, which take precedence over all files."""

    rule_sets: Mapping[str, RuleSet] = field(default_factory=dict)
    defaults: RuleSet | None = None
    forced: RuleSet | None = None
    _directories: dict[str, bool] = field(default_factory=dict)

    def rule(self, path: str, is_directory: bool) -> Rule | None:
        """Return the rule that decides about the path itself, without the directories above it."""
        if self.forced and (found := self.forced.find(path, is_directory)):
            return found
        if found := self._find_in_files(path, is_directory):
            return found
        return self.defaults.find(path, is_directory) if self.defaults else None

    def _find_in_files(self, path: str, is_directory: bool) -> Rule | None:
        if len(self.rule_sets) > 1:
            for folder in ancestors(path):
                rules = self.rule_sets.get(folder)
                if rules and (found := rules.find(path[len(folder) + 1 :], is_directory)):
                    return found
        top = self.rule_sets.get("")
        return top.find(path, is_directory) if top else None

    def is_ignored(self, path: str, is_directory: bool) -> bool:
        """Return whether the path itself is ignored. A walk has already tested the directories above."""
        if is_private(path):
            return True
        found = self.rule(path, is_directory)
        return found is not None and not found.negated

    def is_hidden(self, path: str, is_directory: bool) -> bool:
        """Return whether the path or a directory above it is ignored."""
        return self._is_directory_hidden(parent(path)) or self.is_ignored(path, is_directory)

    def _is_directory_hidden(self, path: str) -> bool:
        if not path:
            return False
        hidden = self._directories.get(path)
        if hidden is None:
            hidden = self._is_directory_hidden(parent(path)) or self.is_ignored(path, True)
            self._directories[path] = hidden
        return hidden

    def explain(self, path: str, is_directory: bool) -> tuple[str, Rule] | None:
        """Return the topmost ignored path at or above a path, and the rule that ignores it."""
        for each in reversed([path, *ancestors(path)]):
            found = self.rule(each, is_directory or each != path)
            if found is not None and not found.negated:
                return each, found
        return None


@cache
def default_rules() -> RuleSet:
    return RuleSet([("defaults", DEFAULT_PATTERNS)])


def forced_rules(include: Sequence[str], exclude: Sequence[str]) -> RuleSet | None:
    """Return the rules of the command line. --include takes precedence over --exclude."""
    lines = [*exclude, *(f"!{pattern}" for pattern in include)]
    return RuleSet([("command line", lines)]) if lines else None
