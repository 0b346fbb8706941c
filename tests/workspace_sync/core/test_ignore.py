"""Tests of ignore rules by named cases, and in comparison with git."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hai_sync.core.ignore import Ignore, RuleSet, default_rules, forced_rules
from hai_sync.scan import Filter, ScanCache, scan


def ignore(files: dict[str, str]) -> Ignore:
    """Build rules from the text of one .gitignore per directory."""
    rule_sets = {f: RuleSet([(f"{f}/.gitignore", t.splitlines())]) for f, t in files.items()}
    return Ignore(rule_sets)


CASES = [
    pytest.param("*.pyc", "a/b.pyc", True, id="a pattern without slash fits at any depth"),
    pytest.param("/top", "top", True, id="a leading slash anchors"),
    pytest.param("/top", "a/top", False, id="an anchored pattern fits only at its place"),
    pytest.param("build/", "build/x", True, id="what lies in an ignored directory"),
    pytest.param("build/\n!build/keep", "build/keep", True, id="nothing is taken back inside it"),
    pytest.param("build/*\n!build/keep", "build/keep", False, id="but inside one that is kept"),
    pytest.param("*.log\n!a.log", "a.log", False, id="a later line takes back"),
    pytest.param("!a.log\n*.log", "a.log", True, id="and another one ignores again"),
    pytest.param("a/**/z", "a/b/c/z", True, id="two stars fit any depth"),
    pytest.param("a/**/z", "a/z", True, id="even none"),
    pytest.param("**/*/**", "a/b", True, id="whatever lies in a directory"),
    pytest.param("**/*/**", "a", False, id="but not what lies beside it"),
    pytest.param("**", "a", True, id="everything"),
    pytest.param("a/*/z", "a/b/c/z", False, id="one star does not cross a slash"),
    pytest.param("# x\n\\#x", "#x", True, id="an escaped hash is no comment"),
    pytest.param("\\!x", "!x", True, id="an escaped mark is no negation"),
    pytest.param("x ", "x", True, id="blanks at the end do not count"),
    pytest.param("[ab]x", "bx", True, id="a class"),
    pytest.param("foo", "foobar", False, id="a name is a whole name"),
]


@pytest.mark.parametrize(("text", "path", "hidden"), CASES)
def test_patterns_decide_which_paths_are_ignored(text: str, path: str, hidden: bool) -> None:
    assert ignore({"": text}).is_hidden(path, False) is hidden


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a", id="no end"),
        pytest.param("a\r\nb\r\n", id="of Windows"),
        pytest.param("\ufeffa\n", id="a mark of the order of bytes, as some editors write it"),
        pytest.param("x\u2028a\nx\x0cb\nx\x85c\n", id="only one character ends a line"),
    ],
)
def test_ignore_files_are_parsed_as_by_git(text: str, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_bytes(text.encode())
    for name in "abc":
        (tmp_path / name).write_text("")
    found = scan(tmp_path, ScanCache(), Filter())
    assert found.ignored_paths - {".git/"} == _git_ignores(tmp_path, ["a", "b", "c"])


def test_a_deeper_ignore_file_takes_precedence() -> None:
    rules = ignore({"": "*.log", "a": "!keep.log"})
    assert not rules.is_hidden("a/keep.log", False)
    assert rules.is_hidden("b/keep.log", False)


def test_ignore_files_override_defaults_and_options_override_files() -> None:
    rules = ignore({"": "!wandb/\nx"})
    rules.defaults = default_rules()
    rules.forced = forced_rules(["x"], ["*.bin"])
    assert not rules.is_hidden("wandb/run", False)
    assert rules.is_hidden("__pycache__/m.pyc", False)
    assert not rules.is_hidden("x", False)
    assert rules.is_hidden("y.bin", False)


def test_the_private_directory_is_never_synced() -> None:
    assert ignore({"": "!.hfai"}).is_hidden(".hfai/workspace.yml", False)


def test_explain_names_the_rule_and_its_line() -> None:
    place, rule = ignore({"": "# note\nbuild/"}).explain("build/a/b", False) or ("", None)
    assert (place, rule and rule.line) == ("build", 2)


NAMES = st.sampled_from(["a", "b", "ab", "a.b", ".c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
GLOBS = st.sampled_from(["a", "b", "*", "?", "a*", "*.b", "[ab]", "**", "a.b", ".c", "[!a]", "\\a"])
PATTERN = st.tuples(
    st.sampled_from(["", "!", "/", "!/"]),
    st.lists(GLOBS, min_size=1, max_size=3).map("/".join),
    st.sampled_from(["", "/"]),
).map("".join)
RULES = st.lists(PATTERN, min_size=1, max_size=4)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create one repository for all examples. Each example has its own directory in it."""
    root = tmp_path_factory.mktemp("git")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(top=RULES, nested=RULES, paths=st.lists(PATHS, min_size=1, max_size=8, unique=True))
def test_results_equal_those_of_git(
    top: list[str], nested: list[str], paths: list[str], repository: Path
) -> None:
    root = Path(tempfile.mkdtemp(dir=repository))
    files = _lay_out(root, paths)
    texts = {"": "\n".join(top)}
    (root / ".gitignore").write_text(texts[""])
    if (root / "a").is_dir():
        texts["a"] = "\n".join(nested)
        (root / "a/.gitignore").write_text(texts["a"])
    rules = ignore(texts)
    ours = {path for path in files if rules.is_hidden(path, (root / path).is_dir())}
    assert ours == _git_ignores(root, files), texts


def _lay_out(root: Path, paths: list[str]) -> list[str]:
    for path in paths:
        target = root / path
        if any(p.is_file() for p in target.parents) or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("")
    return [str(p.relative_to(root)) for p in root.rglob("*")]


def _git_ignores(root: Path, paths: list[str]) -> set[str]:
    done = subprocess.run(
        ["git", "-C", str(root), "check-ignore", "--no-index", "-z", "--stdin"],
        input="\0".join(paths),
        capture_output=True,
        text=True,
        check=False,
    )
    return {path for path in done.stdout.split("\0") if path}
