"""Which images can be pulled, and what is in them: no more than a command and variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

_NOWHERE = ("*.invalid/*",)


@dataclass(frozen=True, slots=True)
class Images:
    """Patterns of names. What is missing wins; names below .invalid are always missing."""

    known: Sequence[str] = ("*",)
    missing: Sequence[str] = _NOWHERE
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)  # where a pod says none
    variables: Mapping[str, str] = field(default_factory=dict)  # of every image
    pull_seconds: float = 0.0

    def pullable(self, image: str) -> bool:
        return _any(image, self.known) and not _any(image, self.missing)

    def command(self, image: str) -> Sequence[str]:
        """What the image runs by itself; empty when nothing is known of it."""
        found = (argv for pattern, argv in self.commands.items() if fnmatchcase(image, pattern))
        return next(found, ())


def _any(image: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(image, pattern) for pattern in patterns)
