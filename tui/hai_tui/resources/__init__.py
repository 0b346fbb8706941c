"""Everything that is a list with a few verbs: quotas, images, users … Each is a value, shown by one page.

A kind names its columns, how it is loaded, and what can be done; screens/resource.py draws it and asks what a
verb needs.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from hai_tui.resources.resource_spec import ResourceSpec

MODULES = (
    "cluster",
    "containers",
    "account",
    "webhooks",
    "images",
    "environments",
    "workspaces",
    "data",
    "storage",
    "quotas",
    "users",
    "policy",
)
"""Modules of this package; each has RESOURCES."""


@cache
def resources() -> dict[str, ResourceSpec]:
    """Every kind, by the name of its page."""
    found = (each for name in MODULES for each in import_module(f"{__name__}.{name}").RESOURCES)
    return {each.name: each for each in found}
