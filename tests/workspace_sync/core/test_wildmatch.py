"""Tests of patterns by named cases, and in comparison with git for any pattern and any bytes in names."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hai_sync.core.ignore import Ignore, RuleSet
from hai_sync.core.wildmatch import as_bytes, parse
from hai_sync.scan import rule_lines

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")

CASES = [
    pytest.param("run[[:digit:]].txt", "run7.txt", True, id="a POSIX class"),
    pytest.param("run[[:digit:]].txt", "runx.txt", False, id="what it does not hold"),
    pytest.param("[![:alpha:]_]", "a", False, id="a negated class with a POSIX class and a letter"),
    pytest.param("[[:foo:]]", "a", False, id="an unknown class matches nothing"),
    pytest.param("[[:digit:]-z]", "-", True, id="a POSIX class begins no range"),
    pytest.param("[a-]", "-", True, id="a hyphen at the end is itself"),
    pytest.param("[a\\-c]", "b", False, id="an escaped hyphen makes no range"),
    pytest.param("[]a]", "]", True, id="a bracket at the begin is itself"),
    pytest.param("[^a]", "b", True, id="a caret negates, too"),
    pytest.param("[z-a]", "m", False, id="a range the wrong way round is empty"),
    pytest.param("[ab", "[ab", False, id="an open class matches nothing"),
    pytest.param("a[/]b", "a/b", False, id="no class holds a slash"),
    pytest.param("a\\", "a\\", False, id="a backslash at the end matches nothing"),
    pytest.param("\\*", "*", True, id="an escaped star is itself"),
    pytest.param("?", "é", False, id="a question mark is one byte"),
    pytest.param("??", "é", True, id="as git sees it, this letter is two"),
    pytest.param("[é]", "é", False, id="nor does a class know letters"),
    pytest.param("a**c", "a/c", False, id="stars inside a part cross no slash"),
    pytest.param("x/**/z", "x/z", True, id="stars that are a part stand for no directory, too"),
    pytest.param("x/***/z", "x/a/b/z", True, id="or for several, however many stars"),
    pytest.param("d/a**", "d/ab/c", True, id="git looks at stars behind plain text by themselves"),
    pytest.param("x\\  ", "x ", True, id="an escaped blank stays, and one behind it goes"),
    pytest.param("x\\\\ ", "x\\", True, id="an escaped backslash escapes no blank"),
    pytest.param("x\t", "x", False, id="a tab at the end counts"),
    pytest.param("x\0y", "x", True, id="a NUL ends the line"),
    pytest.param("a\nb", "a\nb", True, id="a line end in a name"),
]


@pytest.mark.parametrize(("line", "path", "matches"), CASES)
def test_lines_match_paths(line: str, path: str, matches: bool) -> None:
    pattern = parse(line)
    assert pattern is not None
    assert (re.fullmatch(pattern.regex, as_bytes(path), re.DOTALL) is not None) is matches


@pytest.mark.parametrize("line", ["", "# a comment"])
def test_comments_and_empty_lines_have_no_pattern(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    ("line", "path"),
    [
        pytest.param("*a" * 40 + "b", "a" * 250, id="stars in a name"),
        pytest.param("**/a/" * 40 + "b", "a/" * 90 + "a", id="stars between directories"),
        pytest.param("*/**/" * 30 + "b", "a/" * 90 + "a", id="both"),
    ],
)
def test_every_pattern_matches_in_bounded_time(line: str, path: str) -> None:
    """A naive translation of each pattern would try more ways than there are atoms."""
    assert not Ignore({"": RuleSet([(".gitignore", [line])])}).is_hidden(path, False)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create one repository for all examples. git needs only names, not files."""
    root = tmp_path_factory.mktemp("git")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def ignored_by_git(root: Path, text: bytes, paths: list[str]) -> set[str]:
    """Return the paths that git ignores by the text of one .gitignore."""
    (root / ".gitignore").write_bytes(text)
    done = subprocess.run(
        ["git", "-C", str(root), "check-ignore", "--no-index", "-z", "--stdin"],
        input="\0".join(paths).encode(errors="surrogateescape"),
        capture_output=True,
        check=False,
    )
    assert not done.stderr
    return {path.decode(errors="surrogateescape") for path in done.stdout.split(b"\0") if path}


CLASSES = ("alnum", "alpha", "blank", "cntrl", "digit", "graph")
CLASSES += ("lower", "print", "punct", "space", "upper", "xdigit")


@needs_git
@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_same_bytes_as_in_git(name: str, repository: Path) -> None:
    paths = ["x" + bytes([code]).decode(errors="surrogateescape") for code in range(1, 256)]
    paths.remove("x/")
    for line in (f"x[[:{name}:]]", f"x[^[:{name}:]]"):
        rules = Ignore({"": RuleSet([(".gitignore", [line])])})
        ours = {path for path in paths if rules.is_hidden(path, False)}
        assert ours == ignored_by_git(repository, line.encode(), paths), line


NAMED = st.sampled_from(
    ["[:digit:]", "[:alpha:]", "[:space:]", "[:punct:]", "[:no:]", "[:", "[::]"]
)
MEMBER = st.one_of(
    NAMED,
    st.sampled_from(["a", "b", "1", " ", "-", "]", "[", "\\]", "\\-", "a-c", "x-\\z", "é", "/"]),
)
CLASS = st.tuples(
    st.sampled_from(["[", "[!", "[^"]),
    st.lists(MEMBER, max_size=3).map("".join),
    st.sampled_from(["]", "]", "]", ""]),
).map("".join)
PLAIN = st.sampled_from(["a", "b", "ab", "1", "é", "#", "!", "\t", ".", "\\a", "\\*", "\\\\", "\\"])
GLOB = st.one_of(PLAIN, CLASS, st.sampled_from(["*", "?", "**", "***", "\\ ", " "]))
PART = st.lists(GLOB, min_size=1, max_size=3).map("".join)
LINE = st.tuples(
    st.sampled_from(["", "", "!", "/", "!/", "\\!", "#"]),
    st.lists(PART, min_size=1, max_size=3).map("/".join),
    st.sampled_from(["", "/", " ", "  ", "\\ ", "\t", "\\/"]),
).map("".join)
NAMES = (
    "a",
    "b",
    "ab",
    "abc",
    "1",
    "a1",
    "é",
    " ",
    "a ",
    "a]",
    "[a",
    "-",
    "a-",
    "\\",
    "*",
    "#",
    "!a",
    ".",
    "a\nb",
)
PATHS = [
    *NAMES,
    *(f"{a}/{b}" for a in NAMES for b in NAMES),
    *(f"a/{a}/{b}" for a in NAMES for b in NAMES),
]
PATHS = [path for path in PATHS if "." not in path.split("/")]


@needs_git
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lines=st.lists(LINE, min_size=1, max_size=4),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    end=st.sampled_from([b"\n", b"\r\n"]),
    last=st.booleans(),
)
@example(lines=["run[[:digit:]]", "x[[:space:]]y"], mark=b"", end=b"\n", last=True)
def test_results_equal_those_of_git(
    lines: list[str], mark: bytes, end: bytes, last: bool, repository: Path
) -> None:
    text = mark + end.join(line.encode() for line in lines) + (end if last else b"")
    expected = ignored_by_git(repository, text, PATHS)
    rules = Ignore({"": RuleSet([(".gitignore", rule_lines(text))])})
    assert {path for path in PATHS if rules.is_hidden(path, False)} == expected, lines
