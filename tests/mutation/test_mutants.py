"""Each error is made once, has a unique name, and states the lines that a test must execute to notice it."""

from __future__ import annotations

from types import FunctionType

import pytest

from tests.mutation.__main__ import all_mutants, equivalents
from tests.mutation.mutants import compiled, mutants

_SAMPLE = '''
"""A docstring with 1."""
from __future__ import annotations
LIMIT = 3

class Kept:
    number: int = 7

def choose(a: tuple[1, 2], b: int = 5, *, deep: bool = True) -> "1":
    """Another with 2."""
    assert a != 1, "no 3"
    if deep and b < LIMIT:
        return min(a)
    for item in a:
        if not item:
            continue
        a.append(item)
    return f"{b + 1} of 4"
'''

_EXPECTED = [
    "m: 3 becomes 4 in `LIMIT = 3`",
    "m.Kept: 7 becomes 8 in `number: int = 7`",
    "m.choose: True becomes False in `def choose(a: tuple[1, 2], b: int = 5, *, deep: bool = True) -> \"1\":`",
    "m.choose: 5 becomes 6 in `def choose(a: tuple[1, 2], b: int = 5, *, deep: bool = True) -> \"1\":`",
    "m.choose: And becomes Or in `if deep and b < LIMIT:`",
    "m.choose: Lt becomes LtE in `if deep and b < LIMIT:`",
    "m.choose: returns None in `return min(a)`",
    "m.choose: min becomes max in `return min(a)`",
    "m.choose: lost in `a.append(item)`",
    "m.choose: lost in `continue`",
    "m.choose: not is lost in `if not item:`",
    "m.choose: returns None in `return f\"{b + 1} of 4\"`",
]  # fmt: skip


def test_texts_that_are_not_images_are_rejected() -> None:
    assert [mutant.name for mutant in mutants("m", _SAMPLE)] == _EXPECTED


def test_what_acts_on_import_concerns_all_tests_and_a_default_those_of_its_function() -> None:
    lines = [mutant.lines for mutant in mutants("m", _SAMPLE)]
    assert lines[:2] == [None, None]
    assert lines[2] == lines[3] == range(10, 19)
    assert lines[4] == range(12, 13)


@pytest.mark.parametrize(
    ("source", "after"),
    [
        ("x = 2 < 2", [True]),
        ("x = 2 > 2", [True]),
        ("x = 2 == 2", [False]),
        ("x = 7 // 2", [14]),
        ("x = -y", [4]),
        ("x = y in (4,)", [False]),
        ("x = 1 if y else 2", [2]),
        ("x = 1\nx += 2", [1, -1]),
        ("x = any([y, 0])", [False]),
        ("x = {1: 5}\nx[1] = 6", [{1: 5}]),
    ],
)
def test_an_error_ends_the_command_with_its_exit_code(source: str, after: list[object]) -> None:
    """Those of numbers apart."""
    found = []
    for mutant in mutants("m", source):
        if not mutant.name[3:].startswith(tuple("0123456789")):
            space: dict[str, object] = {"y": 4}
            FunctionType(compiled(mutant, source, "m.py"), space)()
            found.append(space["x"])
    assert found == after


def test_equal_errors_of_one_line_are_told_apart() -> None:
    first, second = mutants("m", "x = f(1, 1)")
    assert (first.name, second.name) == (
        "m: 1 becomes 2 in `x = f(1, 1)`",
        "m: 1 becomes 2 in `x = f(1, 1)` #2",
    )


def test_listed_equivalent_mutants_exist() -> None:
    """If this fails, a line has changed. Write its new name into equivalent.txt if the mutant is still equivalent."""
    stale = equivalents().keys() - {mutant.name for mutant in all_mutants()}
    assert sorted(stale) == []
    assert all(equivalents().values())
