"""Kinds of resources that are a list with a few verbs: quotas, images, users … One page shows them all.

A `ResourceSpec` names the columns, how the list is loaded, and the verbs; screens/resource.py draws the list and the
forms of the verbs.
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
