"""Several roots: environments of other roots can be read and activated, but not changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import haienv as package
from haienv.activate.activation import compute_activation
from haienv.names import parse_reference
from haienv.store.layout import Home
from haienv.store.registry import find_by_reference


@pytest.fixture
def roots(haienv: Any, tmp_path: Path) -> Any:
    """Two roots: the other one has environments of ann, bob and the system, and one name exists in both."""
    first = haienv.home.root
    other = tmp_path / "site"
    haienv.monkeypatch.setenv("HAIENV_HOME", str(other))
    haienv.as_user("system").ok("create base --no_extend tool --visibility public")
    haienv.as_user("bob").ok("create his --no_extend --visibility public")
    haienv.as_user("ann").ok("create both --no_extend --description there")
    haienv.ok("create far --extend base plain")
    haienv.monkeypatch.setenv("HAIENV_HOME", str(first))
    haienv.monkeypatch.setenv("HAIENV_PATH", f"{first}:{other}:{tmp_path / 'none'}")
    haienv.ok("create both --no_extend --description here")
    return haienv


def test_environments_are_listed_from_the_first_root_with_their_name(roots: Any) -> None:
    listed = roots.ok("list --json").json
    names = {key: {e["name"]: e["description"] for e in found} for key, found in listed.items()}
    assert names == {
        "own": {"both": "here", "far": ""},
        "system": {"base": ""},
        "others": {"his": ""},
    }
    assert [row[1] for row in package.get_envs("ann")] == ["both", "far"]
    assert roots.ok("list -u bob --names").out == "his[bob]\n"


def test_an_environment_of_another_root_is_activated_there(roots: Any, tmp_path: Path) -> None:
    here = Home.from_environ()
    activated = compute_activation(here, find_by_reference(here, parse_reference("far")))
    assert len(activated.path) == 2
    assert all(path.startswith(str(tmp_path / "site")) for path in activated.path)
    assert roots.ok("info far --json").json["parents"] == ["base[system]"]
    assert roots.ok("which far tool").out.startswith(str(tmp_path / "site"))
    assert roots.ok("verify far").code == 0


@pytest.mark.parametrize(
    ("line", "code"),
    [
        pytest.param("install far fast", 4, id="install"),
        pytest.param("remove far --yes", 4, id="remove"),
        pytest.param("rename far near", 4, id="rename"),
        pytest.param("clone far near", 4, id="clone"),
        pytest.param("config set far description x", 4, id="config"),
        pytest.param("upgrade far", 4, id="upgrade"),
        pytest.param("pack far", 4, id="pack"),
        pytest.param("create near --extend base", 4, id="extend"),
    ],
)
def test_environments_of_other_roots_cannot_be_changed_or_extended(
    roots: Any, line: str, code: int
) -> None:
    done = roots(line)
    assert (done.code, "another root" in done.err) == (code, True), done.err
    assert roots.ok("list --names").out.split() == ["base[system]", "both", "far", "his[bob]"]


def test_an_environment_can_be_copied_between_roots(roots: Any, tmp_path: Path) -> None:
    roots.ok("export base", tmp_path / "base.tar")
    roots.ok("import", tmp_path / "base.tar", "base")
    roots.ok("create near --extend base plain")
    assert roots.get("near").is_ready
