"""The language of conditions: `user.group == 'vision' and not task.name.startswith('test')`.

    condition   all of: any "or" …
    any         each "and" …
    each        "not" each | "(" condition ")" | comparison
    comparison  side ("==" | "!=") side  |  side ["not"] "in" list  |  side "is" ["not"] "None"
                attribute "." ("startswith" | "endswith") "(" text ")"
    side        attribute | 'text' | 12
    list        an attribute that is one | ['a', 'b'] | ('a', 'b')

Types are checked when a condition is parsed, so that a condition that can never be true is rejected when it is written.
`task is None` is true if there is no task.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from hai_backend.domain.mounts.variables import Facts, Kind, Problem, Value, kind_of

Predicate = Callable[[Facts], bool]
_CHARS = 1000
_DEPTH = 20  # levels of parentheses and `not`
_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]+)|(?P<number>\d{1,18})|(?P<text>'[^'\\]*'|\"[^\"\\]*\")"
    r"|(?P<sign>==|!=|[().,\[\]]))"
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token. `kind` is word, number, text (with its quotes), sign, or end, which is always the last token."""

    kind: str
    text: str
    column: int


def tokenize(text: str) -> list[Token]:
    """Split a condition into tokens. Raises Problem."""
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _unreadable(text, at)
        kind = match.lastgroup
        found.append(Token(kind, match[kind], match.start(kind) + 1))
        at = match.end()
    return [*found, Token("end", "the end", len(text) + 1)]


def _unreadable(text: str, at: int) -> Problem:
    at += len(text[at:]) - len(text[at:].lstrip())
    if text[at] in "'\"":
        return Problem(at + 1, "this text has no closing quote, or a backslash in it")
    return Problem(at + 1, f"{text[at]!r} cannot be read here")


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate of a user and a task, and the attributes that it mentions."""

    mentions: frozenset[str]
    holds: Predicate


@lru_cache(maxsize=4096)
def parse_condition(text: str) -> Condition:
    """Parse a condition. Raises Problem."""
    if len(text) > _CHARS:
        raise Problem(1, f"a condition has at most {_CHARS} characters, not {len(text)}")
    reader = _Reader(tokenize(text))
    holds = reader.any(0)
    reader.end()
    return Condition(frozenset(reader.mentions), holds)


@dataclass(frozen=True, slots=True)
class _Side:
    kind: Kind
    get: Callable[[Facts], Value]
    column: int


class _Reader:
    """A recursive descent parser. Each method parses the rule of the grammar with its name."""

    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._at = 0
        self.mentions: set[str] = set()

    def any(self, depth: int) -> Predicate:
        parts = [self._all(depth)]
        while self._take("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else lambda facts: any(p(facts) for p in parts)

    def end(self) -> None:
        if self._next.kind != "end":
            raise self._unexpected("the end, `and` or `or`")

    def _all(self, depth: int) -> Predicate:
        parts = [self._each(depth)]
        while self._take("and"):
            parts.append(self._each(depth))
        return parts[0] if len(parts) == 1 else lambda facts: all(p(facts) for p in parts)

    def _each(self, depth: int) -> Predicate:
        if depth > _DEPTH:
            raise Problem(self._next.column, f"more than {_DEPTH} levels within one another")
        if self._take("not"):
            part = self._each(depth + 1)
            return lambda facts: not part(facts)
        if self._take("("):
            inner = self.any(depth + 1)
            self._need(")")
            return inner
        return self._comparison()

    def _comparison(self) -> Predicate:
        if self._next.text == "task" and self._after.text == "is":
            self._at += 1
            return self._is_none(lambda facts: None if "task.id" not in facts else 1)
        side = self._side()
        if self._take("."):
            return self._affix(side)
        if self._next.text in ("==", "!="):
            return self._equal(side)
        if self._next.text == "is":
            return self._is_none(side.get)
        if self._next.text in ("in", "not"):
            return self._in(side)
        raise self._unexpected("==, !=, in, not in, is, .startswith or .endswith")

    def _is_none(self, get: Callable[[Facts], Value]) -> Predicate:
        self._need("is")
        expected = not self._take("not")
        self._need("None")
        return lambda facts: (get(facts) is None) is expected

    def _equal(self, side: _Side) -> Predicate:
        expected = self._take("==")
        if not expected:
            self._need("!=")
        other = self._side()
        if Kind.TEXTS in (side.kind, other.kind):
            raise Problem(side.column, "lists are not compared: write 'a' in user.groups")
        if side.kind is not other.kind:
            message = f"{other.kind} is never equal to {side.kind}"
            raise Problem(other.column, message)
        one, two = side.get, other.get
        return lambda facts: (one(facts) == two(facts)) is expected

    def _in(self, side: _Side) -> Predicate:
        expected = not self._take("not")
        self._need("in")
        kind, get = self._list()
        if side.kind is not kind:
            raise Problem(side.column, f"{side.kind} is never in a list of {kind.value[2:]}s")
        one = side.get
        return lambda facts: (one(facts) in (get(facts) or ())) is expected

    def _list(self) -> tuple[Kind, Callable[[Facts], tuple[Value, ...]]]:
        """Parse a list: an attribute that is a list, or literals in brackets."""
        if self._next.text not in ("(", "["):
            side = self._side()
            if side.kind is not Kind.TEXTS:
                raise Problem(side.column, f"{side.kind} is no list: write ['a', 'b']")
            get = side.get
            return Kind.TEXT, lambda facts: found if isinstance(found := get(facts), tuple) else ()
        close = {"(": ")", "[": "]"}[self._advance().text]
        sides = [self._literal()]
        while self._take(","):
            if self._next.text == close:
                break
            sides.append(self._literal())
        self._need(close)
        kinds = {side.kind for side in sides}
        if len(kinds) > 1:
            raise Problem(sides[0].column, "a list holds texts or numbers, not both")
        values = tuple(side.get({}) for side in sides)
        return kinds.pop(), lambda facts: values

    def _affix(self, side: _Side) -> Predicate:
        name = self._next
        if name.text not in ("startswith", "endswith"):
            raise self._unexpected("startswith or endswith")
        if side.kind is not Kind.TEXT:
            raise Problem(side.column, f"{side.kind} has no {name.text}")
        self._advance()
        self._need("(")
        affix = self._literal()
        if affix.kind is not Kind.TEXT:
            raise Problem(affix.column, "must be a text in quotes")
        self._need(")")
        get, expected, at_start = side.get, str(affix.get({})), name.text == "startswith"
        return lambda facts: _has_affix(get(facts), expected, at_start=at_start)

    def _side(self) -> _Side:
        token = self._next
        if token.kind != "word":
            return self._literal()
        self._advance()
        self._need(".")
        name = f"{token.text}.{self._advance().text}"
        kind = kind_of(name, token.column)
        self.mentions.add(name)
        return _Side(kind, lambda facts: facts[name], token.column)

    def _literal(self) -> _Side:
        token = self._next
        if token.kind not in ("text", "number"):
            raise self._unexpected("an attribute such as user.name, a text in quotes, or a number")
        self._advance()
        if token.kind == "text":
            text = token.text[1:-1]
            return _Side(Kind.TEXT, lambda facts: text, token.column)
        number = int(token.text)
        return _Side(Kind.NUMBER, lambda facts: number, token.column)

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    @property
    def _after(self) -> Token:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def _advance(self) -> Token:
        token = self._next
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _take(self, text: str) -> bool:
        if self._next.text != text or self._next.kind not in ("word", "sign"):
            return False
        self._at += 1
        return True

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(text)

    def _unexpected(self, expected: str) -> Problem:
        return Problem(self._next.column, f"expected {expected}, not {self._next.text}")


def _has_affix(value: Value, expected: str, *, at_start: bool) -> bool:
    if not isinstance(value, str):
        return False
    return value.startswith(expected) if at_start else value.endswith(expected)
