"""Kinds of resources that are a list with a few verbs: quotas, images, users and so on. One page shows them all.

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
"""The modules of this package that define resources; each has RESOURCES."""


@cache
def resources() -> dict[str, ResourceSpec]:
    """Return every kind of resource by the name of its page."""
    modules = (import_module(f"{__name__}.{name}") for name in MODULES)
    return {spec.name: spec for module in modules for spec in module.RESOURCES}
