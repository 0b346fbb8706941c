"""The language of conditions: results, and errors with their columns."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hai_backend.domain.mounts.condition import parse_condition
from hai_backend.domain.mounts.variables import Facts, Problem

FACTS: Facts = {
    "user.name": "ada",
    "user.uid": 2001,
    "user.group": None,
    "user.groups": ("vision", "speech"),
    "user.role": "USER",
    "task.id": 12,
    "task.name": "resnet-50",
    "task.tags": (),
}
HOLDS = {
    "user.name == 'ada'": True,
    'user.name == "ada"': True,
    "'ada' == user.name": True,
    "user.name != 'ada'": False,
    "user.uid == 2001": True,
    "user.uid != 2001": False,
    "user.name == task.name": False,
    "'vision' in user.groups": True,
    "'audio' in user.groups": False,
    "'audio' not in user.groups": True,
    "user.name in ['ada', 'bob']": True,
    "user.name in ('bob', 'eve',)": False,
    "user.uid in [1, 2001]": True,
    "user.name not in ['bob']": True,
    "'x' in task.tags": False,
    "task.name.startswith('resnet')": True,
    "task.name.startswith('net')": False,
    "task.name.endswith('-50')": True,
    "task.name.endswith('resnet')": False,
    "user.group is None": True,
    "user.group is not None": False,
    "user.group == 'vision'": False,
    "user.group.startswith('v')": False,
    "task is None": False,
    "task is not None": True,
    "not user.uid == 1": True,
    "not not user.uid == 1": False,
    "user.uid == 1 or user.name == 'ada'": True,
    "user.uid == 1 and user.name == 'ada'": False,
    "user.uid == 1 and user.uid == 1 or user.name == 'ada'": True,
    "user.uid == 1 and (user.uid == 1 or user.name == 'ada')": False,
    "not user.uid == 1 and user.name == 'ada'": True,
    "not (user.uid == 1 or user.name == 'ada')": False,
    "  user.name\n==  'ada' ": True,
    "user.name == ''": False,
    "user.name == 'and'": False,
}


@pytest.mark.parametrize(("text", "expected"), HOLDS.items())
def test_conditions_are_evaluated(text: str, expected: bool) -> None:
    assert parse_condition(text).holds(FACTS) is expected


WRONG = [
    ("", 1, "not the end"),
    ("   ", 4, "not the end"),
    ("user.name", 10, "expected =="),
    ("'ada'", 6, "expected =="),
    ("user.name = 'ada'", 11, "'=' cannot be read"),
    ("user.name == ", 14, "not the end"),
    ("user.name == 'ada", 14, "no closing quote"),
    (r"user.name == 'a\'b'", 14, "backslash"),
    ("user.name == 'ada' user.uid == 1", 20, "`and` or `or`"),
    ("user.name == 'ada' and", 23, "not the end"),
    ("(user.name == 'ada'", 20, "expected )"),
    ("user.name == 'ada')", 19, "`and` or `or`"),
    ("user.nam == 'ada'", 1, "there is no 'user.nam'"),
    ("group == 'ada'", 7, "expected ."),
    ("user.__class__ == 'x'", 1, "there is no 'user.__class__'"),
    ("user.name.__class__ == 'x'", 11, "expected startswith or endswith"),
    ("user.name.upper() == 'x'", 11, "expected startswith or endswith"),
    ("user.uid.startswith('x')", 1, "a number has no startswith"),
    ("user.name.startswith(1)", 22, "a text in quotes"),
    ("user.name.startswith(user.role)", 22, "a text in quotes"),
    ("user.name.startswith('a', 'b')", 25, "expected )"),
    ("user.uid == '2001'", 13, "never equal"),
    ("user.groups == 'vision'", 1, "lists are not compared"),
    ("user.name in 'ada'", 14, "is no list"),
    ("user.name in user.role", 14, "is no list"),
    ("user.uid in user.groups", 1, "never in a list of texts"),
    ("user.name in ['a', 1]", 15, "not both"),
    ("user.name in []", 15, "a text in quotes"),
    ("user.name in ['a'", 18, "expected ]"),
    ("user.name is 'ada'", 14, "expected None"),
    ("user is None", 6, "expected ."),
    ("None == user.group", 6, "expected ."),
    ("__import__('os')", 11, "expected ."),
    ("eval('1')", 5, "expected ."),
    ("user.uid < 5", 10, "'<' cannot be read"),
    ("user.uid + 1 == 2", 10, "'+' cannot be read"),
    ("lambda: 1", 7, "':' cannot be read"),
    ("f'{user.name}' == 'ada'", 2, "expected ."),
    ("True", 5, "expected ."),
    ("(" * 30 + "user.uid == 1" + ")" * 30, 22, "more than 20 levels"),
    ("not " * 30 + "user.uid == 1", 85, "more than 20 levels"),
    ("user.name == '" + "x" * 1000 + "'", 1, "at most 1000 characters"),
]


@pytest.mark.parametrize(("text", "column", "said"), WRONG)
def test_every_error_has_its_column(text: str, column: int, said: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_condition(text)
    assert said in str(caught.value)
    assert caught.value.column == column


def test_placeholders_of_a_template_are_known() -> None:
    found = parse_condition("user.name == 'ada' or 'x' in task.tags or task is None")
    assert found.mentions == {"user.name", "task.tags"}


SIGNS = "user.name user.uid user.groups task.id task == != in not is None and or ( ) [ ] , 'a' 1 ."
words = st.sampled_from(SIGNS.split())


@given(st.text(max_size=40) | st.lists(words, max_size=12).map(" ".join))
@example("user.name == '" * 3)
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    column, answer = 1, True
    try:
        answer = parse_condition(text).holds(FACTS)
    except Problem as problem:
        column = problem.column
    assert 1 <= column <= len(text) + 1
    assert answer in (True, False)
