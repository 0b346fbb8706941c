"""`hai workspace …`: the commands of haiworkspace, a package of its own, which is loaded by name."""

from __future__ import annotations

from importlib import import_module

import click


def _group() -> click.Group:
    found = import_module("hai_sync.cli.main").group()
    assert isinstance(found, click.Group)
    return found


workspace = _group()
