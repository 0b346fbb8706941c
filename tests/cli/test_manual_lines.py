"""Every command line of the manual and of the help texts is valid, and fits a page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from hai.client.fake.server import FakeClient
from hai_backend.api.request.filters import parse
from hai_tui.cli.commands.tasks.list import list_tasks
from hai_tui.cli.main import ENTRIES, make_root
from hai_tui.cli.migration_hints import COMMAND_EQUIVALENTS, OPTION_EQUIVALENTS, command_lines
from hai_tui.cli.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def _lines(page: Path) -> list[str]:
    blocks = SHELL.findall(page.read_text("utf-8"))
    return [line for block in blocks for line in block.splitlines() if line.startswith("hai ")]


LINES = [pytest.param(line, id=line[:40]) for page in PAGES for line in _lines(page)]


def _parse(command: click.Command, name: str, args: list[str]) -> None:
    """Parse the options as `hai` does, without running the command. Raise UsageError."""
    settings = Settings(lambda profile: FakeClient(nodes=[]), lambda: 0.0)
    context = command.make_context(name, args, obj=settings)
    if isinstance(command, click.Group) and args:
        found, sub, rest = command.resolve_command(context, args)
        assert sub is not None
        _parse(sub, str(found), rest)


@pytest.mark.parametrize("line", LINES)
def test_lines_of_the_manual_parse(line: str) -> None:
    _parse(make_root(), "hai", shlex.split(line, comments=True)[1:])


TOLD = sorted({line for said in COMMAND_EQUIVALENTS.values() for line in command_lines(said)})


@pytest.mark.parametrize("line", TOLD)
def test_what_is_told_to_who_comes_from_elsewhere_parses(line: str) -> None:
    assert line.startswith("hai")
    here = line.replace("NODES", "2")
    _parse(make_root(), "hai", shlex.split(here)[1:])


def test_a_word_of_another_system_is_answered_with_ours(hai) -> None:
    done = hai("scancel", "12")
    assert (done.code, done.out) == (2, "")
    assert "no such command 'scancel'; here that is `hai stop TASK`" in done.err
    assert set(COMMAND_EQUIVALENTS).isdisjoint(entry.name for entry in ENTRIES)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("sreport", "`hai usage` or `hai list --state finished --all -o json`"),
        ("sprof", "`hai usage TASK`"),
        ("retry", "`hai describe TASK | hai run -`"),
        ("restart", "`hai suspend TASK` or, when it has ended, `hai describe TASK | hai run -`"),
        ("edit", "`hai describe TASK > new.yaml` and, when it is changed, `hai run new.yaml`"),
        *((word, "`hai status TASK`") for word in ("info", "show")),
        *((word, "`hai describe TASK | hai run -`") for word in ("rerun", "clone")),
        ("cp", "`hai workspace push` or `hai workspace download PATH`"),
    ],
)
def test_every_word_that_was_tried_has_an_answer(word, told, hai) -> None:
    assert f"no such command '{word}'; here that is {told}" in hai(word).err


@pytest.mark.parametrize("option", OPTION_EQUIVALENTS)
@pytest.mark.parametrize("line", ["bash job.sh --", "run job.yml"])
def test_an_option_of_another_system_is_answered_with_ours(option, line, hai) -> None:
    done = hai(*line.split(), option, "1")
    assert (done.code, done.out) == (2, "")
    assert f"no such option '{option}'; here that is {OPTION_EQUIVALENTS[option]}" in done.err


def test_what_is_told_of_options_parses() -> None:
    for here in OPTION_EQUIVALENTS.values():
        if here.startswith("-"):
            _parse(make_root(), "hai", ["bash", "job.sh", "--", *shlex.split(_filled(here))])


def _filled(line: str) -> str:
    return line.replace("NODES", "2").replace("PRIORITY", "HIGH")


def test_the_manual_lists_every_command_where_help_lists_it() -> None:
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    rows = re.findall(r"^\| (Run|Tasks|Cluster|Account|Admin) \| (.*) \|$", text, re.MULTILINE)
    listed = [
        (name, title.lower()) for title, names in rows for name in re.findall("`(.+?)`", names)
    ]
    assert listed == [(entry.name, entry.section) for entry in ENTRIES]


def test_the_manual_leads_to_all_its_pages() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages - set(re.findall(r"\((\S+?\.md)\)", index)) == set()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_help_fits_a_terminal_of_80_columns(entry, hai) -> None:
    assert max(map(len, hai(entry.name, "--help").out.splitlines())) <= 80


def _terms(text: str) -> str:
    """Return the terms that a list of filter terms names."""
    found = re.search(r"state:running,suspended.*?id:1,2", text, re.DOTALL)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("where", ["help", "manual"])
def test_the_server_takes_every_term_of_a_filter_that_is_told(where: str) -> None:
    told = list_tasks.help if where == "help" else (ROOT / "docs/cli.md").read_text("utf-8")
    parse(_terms(told or ""), "ada", 1_800_000_000.0)
