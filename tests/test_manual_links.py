"""The links of the manual and of the pages beside it resolve, and contributor pages name only files that exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_architecture import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "backend/docs").rglob("*.md"),
        *(ROOT / "examples").glob("*.md"),
    ]
)
CONTRIBUTOR_PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs/contributing").glob("*.md"))]
GENERATED = {ROOT / "docs/client-api.md"}
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
SOURCE_FILE = re.compile(r"[\w./-]+\.(?:py|proto|ts|tsx|yaml|yml|md)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
RUNTIME_FILES = {"values.yaml", "train.py", "task.yml", "new.yaml"}


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _prose(page: Path) -> str:
    return FENCED.sub("", page.read_text("utf-8"))


@cache
def _anchors(page: Path) -> set[str]:
    """Anchors as mkdocs makes them of headings."""
    toc = pytest.importorskip("markdown.extensions.toc", reason="anchors need python-markdown")
    used: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", _prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        toc.unique(toc.slugify(text, "-"), used)
    return used


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_resolve(page: Path) -> None:
    dead = []
    for link in LINK.findall(_prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target in GENERATED:
            continue
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in _anchors(target)
        ):
            dead.append(link)
    assert dead == []


@cache
def _files() -> tuple[str, ...]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(f"/{line}" for line in listed.stdout.splitlines())


@pytest.mark.parametrize("page", CONTRIBUTOR_PAGES, ids=_name)
def test_source_files_that_are_named_exist(page: Path) -> None:
    """A name in backticks such as `controllers/tasks/task_manager.py` is the end of a path of the repository."""
    named = {span for span in CODE.findall(_prose(page)) if SOURCE_FILE.fullmatch(span)}
    missing = {
        name
        for name in named - RUNTIME_FILES
        if not any(file.endswith(f"/{name.lstrip('./')}") for file in _files())
    }
    assert missing == set()


def _nav_pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    return [page for value in values for page in _nav_pages(value)]


def test_the_site_shows_every_page_once() -> None:
    configuration = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    shown = _nav_pages(configuration["nav"])
    docs = ROOT / "docs"
    there = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    assert sorted(shown) == sorted(there | {str(page.relative_to(docs)) for page in GENERATED})


def _client_api() -> Any:
    spec = importlib.util.spec_from_file_location(
        "client_api", ROOT / "scripts/manual/client_api.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_reference_of_the_client_describes_every_public_method() -> None:
    api = _client_api()
    page = api.client_api()
    described = set(re.findall(r"^\*\*`(\w+)", page, re.MULTILINE))
    for attribute, kind in api.resources().items():
        assert f"## `client.{attribute}`" in page
        assert kind.__doc__, f"{kind} has no docstring"
        for name, method in api.public_methods(kind).items():
            assert name in described
            assert method.__doc__, f"client.{attribute}.{name} has no docstring"
