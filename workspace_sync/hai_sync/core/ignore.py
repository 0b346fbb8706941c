"""Which paths are left out, by git's rules.

Files of rules (.gitignore, .haiignore, .hfignore) count in their own directory and below; a deeper file
beats a higher one, a later line an earlier one, `!` takes back. Nothing can be taken back inside a
directory that is left out, so whoever walks a tree need not look into it. A pattern is compared with
the path itself, never with a directory above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from hai_sync.core.entry import ancestors, parent
from hai_sync.core.names import is_own
from hai_sync.core.wildmatch import Pattern, as_bytes, parse

FILES = (".gitignore", ".haiignore", ".hfignore")
"""Read in each directory; later ones win."""

DEFAULTS = (
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
"""Always there, below every file, so that a file can take them back."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line."""

    source: str  # the file, or "defaults"
    line: int
    text: str
    pattern: Pattern
    regex: re.Pattern[str]

    @property
    def negated(self) -> bool:
        """Whether it takes back what an earlier line leaves out."""
        return self.pattern.negated

    def fits(self, path: str, is_directory: bool) -> bool:
        """Whether it speaks of this path, whose name has a character for each byte."""
        if self.pattern.directories_only and not is_directory:
            return False
        text = _last_part(path) if self.pattern.name_only else path
        return self.regex.fullmatch(text) is not None


class RuleSet:
    """The rules that stand in one directory; the last one that fits counts.

    They are read when somebody asks: where nothing has changed nobody does.
    """

    def __init__(self, texts: Iterable[tuple[str, Iterable[str]]]) -> None:
        self._texts = texts

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """In the order of their files and lines."""
        return tuple(rule for source, lines in self._texts for rule in _read(source, lines))

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
        """Of names and of paths: most paths fit none, and one look at each tells."""
        patterns = [rule.pattern for rule in self.rules]
        return (
            _any_of([each.regex for each in patterns if each.name_only]),
            _any_of([each.regex for each in patterns if not each.name_only]),
        )

    def find(self, path: str, is_directory: bool) -> Rule | None:
        """The rule that decides about a path relative to this directory."""
        names, paths = self._patterns
        path = as_bytes(path)
        fits = names is not None and names.fullmatch(_last_part(path)) is not None
        if not fits and (paths is None or paths.fullmatch(path) is None):
            return None
        return next((r for r in reversed(self.rules) if r.fits(path, is_directory)), None)


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
    """The rules of a whole tree. `forced` (of the command line) beats all files."""

    levels: Mapping[str, RuleSet] = field(default_factory=dict)
    defaults: RuleSet | None = None
    forced: RuleSet | None = None
    _directories: dict[str, bool] = field(default_factory=dict)

    def rule(self, path: str, is_directory: bool) -> Rule | None:
        """The rule that decides about a path itself."""
        if self.forced and (found := self.forced.find(path, is_directory)):
            return found
        if found := self._of_files(path, is_directory):
            return found
        return self.defaults.find(path, is_directory) if self.defaults else None

    def _of_files(self, path: str, is_directory: bool) -> Rule | None:
        if len(self.levels) > 1:
            for folder in ancestors(path):
                rules = self.levels.get(folder)
                if rules and (found := rules.find(path[len(folder) + 1 :], is_directory)):
                    return found
        top = self.levels.get("")
        return top.find(path, is_directory) if top else None

    def skips(self, path: str, is_directory: bool) -> bool:
        """True when the path itself is left out; whoever walks has asked for those above."""
        if is_own(path):
            return True
        found = self.rule(path, is_directory)
        return found is not None and not found.negated

    def hides(self, path: str, is_directory: bool) -> bool:
        """True when the path or a directory that it lies in is left out."""
        return self._hides_directory(parent(path)) or self.skips(path, is_directory)

    def _hides_directory(self, path: str) -> bool:
        if not path:
            return False
        known = self._directories.get(path)
        if known is None:
            known = self._hides_directory(parent(path)) or self.skips(path, True)
            self._directories[path] = known
        return known

    def why(self, path: str, is_directory: bool) -> tuple[str, Rule] | None:
        """The topmost path that is left out, and the rule that says so."""
        for each in reversed([path, *ancestors(path)]):
            found = self.rule(each, is_directory or each != path)
            if found is not None and not found.negated:
                return each, found
        return None


@cache
def default_rules() -> RuleSet:
    """What nobody wants to sync."""
    return RuleSet([("defaults", DEFAULTS)])


def forced_rules(include: Sequence[str], exclude: Sequence[str]) -> RuleSet | None:
    """Of the command line: what is included beats what is excluded."""
    lines = [*exclude, *(f"!{pattern}" for pattern in include)]
    return RuleSet([("command line", lines)]) if lines else None
