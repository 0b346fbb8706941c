"""Which paths are left out, by git's rules.

Files of rules (.gitignore, .haiignore, .hfignore) count in their own directory and below; a deeper file
beats a higher one, a later line an earlier one, `!` takes back. Nothing can be taken back inside a
directory that is left out, so whoever walks a tree need not look into it. pathspec translates
patterns; we match them ourselves, because git asks whether a pattern fits the path itself, not one above.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from hai_sync.core.entry import ancestors, parent
from hai_sync.core.names import is_own

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
    negated: bool
    for_directories: bool
    regex: re.Pattern[str]

    def fits(self, path: str, is_directory: bool) -> bool:
        """Whether it speaks of this path, not merely of one above it."""
        found = self.regex.match(path) if is_directory or not self.for_directories else None
        return found is not None and not _went_on(found)


def _went_on(found: re.Match[str]) -> bool:
    """True when the pattern had fitted a directory above already."""
    return "ps_d" in found.re.groupindex and found.start("ps_d") >= 0


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
        patterns = [str(rule.regex.pattern).replace("(?P<ps_d>", "(?:") for rule in self.rules]
        of_names = [pattern[len(_ANYWHERE) :] for pattern in patterns if _is_name(pattern)]
        return _any_of(of_names), _any_of([p for p in patterns if not _is_name(p)])

    def find(self, path: str, is_directory: bool) -> Rule | None:
        """The rule that decides about a path relative to this directory."""
        names, paths = self._patterns
        fits = names is not None and names.match(path.rpartition("/")[2]) is not None
        if not fits and (paths is None or paths.match(path) is None):
            return None
        return next((r for r in reversed(self.rules) if r.fits(path, is_directory)), None)


_ANYWHERE = "^(?:.+/)?"


def _is_name(pattern: str) -> bool:
    """Whether the last part of a path is all that it looks at."""
    if not pattern.startswith(_ANYWHERE):
        return False
    rest = pattern[len(_ANYWHERE) :].removesuffix("(?:(?:/)|$)").replace("[^/]", "")
    return "/" not in rest


def _any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{p})" for p in patterns), re.DOTALL) if patterns else None


def _read(source: str, lines: Iterable[str]) -> Iterable[Rule]:
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # 20 ms, when it is needed

    for number, line in enumerate(lines, 1):
        text = line.removesuffix("\n").removesuffix("\r")
        bare = _without_blanks(text)
        name = bare.removesuffix("/")  # pathspec would let it fit what lies inside, too
        try:
            pattern = GitIgnoreSpecPattern(name)
        except ValueError:
            continue  # git passes over what it cannot read, too
        if pattern.include is not None and pattern.regex is not None:
            regex = _from_the_start(pattern.regex)
            yield Rule(source, number, text, not pattern.include, name != bare, regex)


def _from_the_start(regex: re.Pattern[str]) -> re.Pattern[str]:
    """Of `**/*/**` pathspec makes a bare slash, to be found anywhere."""
    return regex if regex.pattern.startswith("^") else re.compile(f"^.*{regex.pattern}", re.DOTALL)


def _without_blanks(text: str) -> str:
    bare = text.rstrip(" ")
    return bare + " " if bare.endswith("\\") and bare != text else bare


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
