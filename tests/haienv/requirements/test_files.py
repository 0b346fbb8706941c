"""haienv reads files with requirements as the tools that define them do, or refuses them with one sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from haienv.errors import UsageError
from haienv.requirements.files import read_requirements

REQUIREMENTS = "# x\nfast==1.0  # why\n\n-r more.txt\n"
PROJECT = '[project]\nname = "p"\ndependencies = ["fast<2"]\n'
CONDA = """
channels: [x]
dependencies:
- python={py}
- fast=1.0=build_0
- pip
- pip:
  - tool
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("r.txt", REQUIREMENTS, {"fast": "1.0", "tool": "1.0"}, id="requirements"),
        pytest.param("pyproject.toml", PROJECT, {"fast": "1.0"}, id="pyproject"),
        pytest.param("environment.yml", CONDA, {"fast": "1.0", "tool": "1.0"}, id="conda"),
    ],
)
def test_requirements_are_read_from_files(
    haienv: Any, tmp_path: Path, name: str, text: str, expected: dict[str, str]
) -> None:
    (tmp_path / "more.txt").write_text("tool\n")
    (tmp_path / name).write_text(text.replace("{py}", "{}.{}".format(*sys.version_info[:2])))
    haienv.ok("create one --no_extend --from", tmp_path / name)
    assert haienv.ok("freeze one --json").json == expected


def test_the_pip_section_of_conda_files_is_read(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("fast\n")
    (tmp_path / "e.yml").write_text(
        "dependencies:\n- pip\n- pip:\n  - plain\n  - -r r.txt\n  - -e .\n"
    )
    found = read_requirements(tmp_path / "e.yml")
    assert (found.requirements, found.editable) == (("plain", "fast"), (str(tmp_path),))


def test_extras_may_include_one_another(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "My_Own"\ndependencies = ["a"]\n[project.optional-dependencies]\n'
        'all = ["my-own[Train-It]", "b"]\nTrain_it = ["c", "my.own[all]"]\nother = ["d"]\n'
    )
    assert read_requirements(tmp_path / "pyproject.toml", ["all"]).requirements == ("a", "b", "c")


def test_packages_without_a_hash_are_refused(haienv: Any, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "own"\nversion = "1"\n')
    result = haienv("create one --no_extend --dry-run", f"own @ {tmp_path.as_uri()}")
    assert result.code == 1
    assert "own @ file://" in result.err
    assert "-e DIR" in result.err


@pytest.mark.parametrize("text", ["--index-url http://x\nfast\n", "-c x.txt\n", "--pre\n"])
def test_options_in_files_are_refused(haienv: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "r.txt").write_text(text)
    assert haienv("create one --no_extend --from", tmp_path / "r.txt").code == 2


@pytest.mark.parametrize("source", ["UV_CONSTRAINT", "uv.toml"])
def test_constraints_of_uv_settings_are_applied(haienv: Any, tmp_path: Path, source: str) -> None:
    if source == "uv.toml":
        haienv.home.root.mkdir()
        (haienv.home.root / source).write_text("constraint-dependencies = ['fast<2', 'plain<2']\n")
    else:
        (tmp_path / "one.txt").write_text("fast<2\n")
        (tmp_path / "two.txt").write_text("plain<2\n")
        haienv.monkeypatch.setenv(source, f"{tmp_path / 'one.txt'} {tmp_path / 'two.txt'}")
    haienv.ok("create base --no_extend fast")
    haienv.ok("create top --extend base plain")
    assert haienv.ok("freeze top --json").json == {"fast": "1.0", "plain": "1.0"}


@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-16"])
def test_files_of_windows_are_decoded(tmp_path: Path, coding: str) -> None:
    (tmp_path / "r.txt").write_bytes("fast==1.0\r\nplain\r\n".encode(coding))
    assert read_requirements(tmp_path / "r.txt").requirements == ("fast==1.0", "plain")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("r.txt", "fast é\n", id="not UTF-8"),
        pytest.param("r.txt", "-r r.txt\n", id="itself"),
        pytest.param("r.txt", "# haienv lock 2\n# python 3.11\n", id="a newer lock"),
        pytest.param("r.txt", "# haienv lock 10\n# python 3.11\n", id="a much newer lock"),
        pytest.param("p.toml", "[project", id="no TOML"),
        pytest.param("p.toml", "project = 3", id="no table"),
        pytest.param("p.toml", "[tool.other]\ndependencies = ['fast']", id="no project"),
        pytest.param("p.toml", "[project]\ndynamic = ['dependencies']", id="computed"),
        pytest.param("p.toml", "[project]\ndependencies = 'fast'", id="no list"),
        pytest.param("p.toml", "[project]\ndependencies = [3]", id="no text"),
        pytest.param("p.toml", "[project]\noptional-dependencies = 3", id="no extras"),
        pytest.param("e.yml", "a: [", id="no YAML"),
        pytest.param("e.yml", "!!python/object/apply:os.getcwd []", id="code"),
        pytest.param("e.yml", "dependencies: [3]", id="a number"),
        pytest.param("e.yml", "dependencies: [{pip: fast}]", id="no list for pip"),
        pytest.param("e.yml", "dependencies: ['python>=a']", id="no range"),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=name) as why:
        read_requirements(tmp_path / name)
    assert "\n" not in why.value.message


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("python=3.12", "3.12"),
        ("python 3.12.*", "3.12"),
        ("python==3.12.1", "3.12.1"),
        ("python>=3.9", ""),
        ("python >=3.9,<99", ""),
        ("python>=99", ">=99"),
    ],
)
def test_python_versions_of_conda_files(tmp_path: Path, line: str, python: str) -> None:
    (tmp_path / "e.yml").write_text(f"dependencies:\n- {line}\n- pip:\n")
    assert read_requirements(tmp_path / "e.yml").python == python
