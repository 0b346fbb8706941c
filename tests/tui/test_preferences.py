"""Preferences of the app: a full disk, and several apps that write the same file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hai_tui.preferences import Preferences


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "tui.toml"


def test_what_is_put_is_loaded(path: Path) -> None:
    state = Preferences(path)
    state.put("columns", ["id", "名"])
    state.put("views", {"mine": "user:me"})
    state.put("theme", "light")
    assert Preferences.load(path).values == {**state.values, "version": 1}


def test_a_full_disk_keeps_nothing_half_and_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    state = Preferences(path)
    with monkeypatch.context() as full:
        full.setattr(os, "replace", fail)
        state.put("theme", "light")
    assert (state.error, os.listdir(path.parent)) == (f"{path}: No space left on device", [])
    state.put("sort", "id+")
    assert (state.error, os.listdir(path.parent)) == ("", [path.name])
    kept = Preferences.load(path)
    assert (kept.text("theme"), kept.text("sort")) == ("light", "id+")


def test_apps_beside_one_another_lose_nothing(path: Path) -> None:
    one, two = Preferences.load(path), Preferences.load(path)
    one.put("theme", "light")
    one.put("views", {"mine": "user:me"})
    two.put("theme", "dark")
    two.put("views", {"big": "nodes>8"})
    one.put("sort", "id+")
    kept = Preferences.load(path)
    assert (kept.text("theme"), kept.text("sort")) == ("dark", "id+")
    assert kept.table("views") == {"mine": "user:me", "big": "nodes>8"}


def test_a_file_that_can_not_be_read_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("theme = ")
    state = Preferences.load(path)
    state.put("theme", "light")
    assert (path.read_text(), state.error.startswith(f"{path}: ")) == ("theme = ", True)
    assert state.text("theme") == "light"
