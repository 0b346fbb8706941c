"""Tests of `hai admin snapshot`, which writes to standard output or to a file that appears when it is complete."""

from __future__ import annotations

import json
import stat
from pathlib import Path

FORMAT = "hai.snapshot"


def test_it_is_printed(hai) -> None:
    hai.client.add_node("n7")
    done = hai("admin", "snapshot", "-o", "json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["format"] == FORMAT
    assert "n7" in [node["name"] for node in found["nodes"]]


def test_it_is_written_into_a_file_of_its_owner(hai, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text("an older one")
    done = hai("admin", "snapshot", "--anonymize", "--out", str(path))
    assert (done.code, done.out, done.err) == (0, "", f"{path} written\n")
    assert json.loads(path.read_text())["format"] == FORMAT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_server_nothing_is_left_or_lost(hai, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text("an older one")
    hai.client.lose()
    assert hai("admin", "snapshot", "--out", str(path)).code == 5
    assert path.read_text() == "an older one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_named(hai, tmp_path: Path) -> None:
    path = tmp_path / "no" / "x.json"
    done = hai("admin", "snapshot", "--out", str(path))
    assert (done.code, done.err) == (1, f"hai: {path}: No such file or directory\n")


def test_a_quota_of_a_group_without_nodes_is_questioned(hai) -> None:
    hai.client.add_node("n7", group="vision")
    done = hai("quota", "set", "alice", "4", "-g", "visoin")
    assert done.code == 0
    assert "no node belongs to the group visoin now: did you mean vision?" in done.err
    assert hai("quota", "set", "alice", "4", "-g", "vision").err == ""


def test_the_last_user_group_and_right_can_be_taken_away(hai) -> None:
    assert hai("user", "create", "ada", "--group", "vision", "--right", "ports:2").code == 0
    done = hai("user", "update", "ada", "--group", "", "--right", "", "--json")
    found = json.loads(done.out)
    assert (done.code, found["groups"], found["rights"]) == (0, [], [])
