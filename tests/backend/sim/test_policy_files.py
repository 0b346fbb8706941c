"""`hai simulate --policy FILE` accepts the settings that scheduler.policy.policy accepts for a group."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hai_backend.domain.errors import Invalid
from hai_backend.domain.priority import Priority
from hai_backend.scheduler.policy.policy import Demotion, Policy, Ranking, to_mapping
from hai_backend.sim.cli.engine import production_engine, read_policy

TOML = """
ranking = "attained"
staying = 2
default_quota = -1

[demotion.HIGH]
to = "LOW"
after_seconds = 60
"""
YAML = """
ranking: attained
staying: 2
demotion: {HIGH: {to: LOW, after_seconds: 60}}
"""
WRITTEN = Policy(
    ranking=Ranking.ATTAINED,
    staying=2.0,
    demotion={Priority.HIGH: Demotion(Priority.LOW, 60.0)},
)


@pytest.mark.parametrize(
    ("name", "text", "policy"),
    [
        pytest.param("a.toml", TOML, WRITTEN, id="toml"),
        pytest.param("a.yaml", YAML, WRITTEN, id="yaml"),
        pytest.param(
            *("a.toml", "\ufeff" + TOML.replace("\n", "\r\n"), WRITTEN), id="as Windows writes it"
        ),
        pytest.param("a.json", json.dumps(to_mapping(WRITTEN)), WRITTEN, id="json, all settings"),
        pytest.param("a.toml", "", Policy(), id="nothing"),
    ],
)
def test_a_file_is_read(tmp_path: Path, name: str, text: str, policy: Policy) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_policy(str(path), production_engine()) == policy


def test_every_violation_of_a_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("stayin = 2\nurgent = 'HIHG'\n")
    with pytest.raises(Invalid) as caught:
        read_policy(str(path), production_engine())
    assert [str(violation) for violation in caught.value.violations] == [
        f"{path}: stayin: there is no such setting; did you mean staying?",
        f"{path}: urgent: there is no 'HIHG'; did you mean HIGH?",
    ]
