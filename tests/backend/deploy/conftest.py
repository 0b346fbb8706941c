"""Fixtures that render the chart with Helm."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "backend" / "deploy"
CHART = DEPLOY / "chart"
Body = dict[str, Any]
Render = Callable[..., list[Body]]

LEAST: Body = {"image": {"repository": "example/hai"}, "postgresql": {"enabled": True}}
"""The least that the chart needs to know."""


class Refused(Exception):
    """The error message of Helm for invalid values."""


def run_helm(*arguments: str, given: str = "") -> str:
    done = subprocess.run(
        ["helm", *arguments], input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


@pytest.fixture(scope="session")
def helm() -> Callable[..., str]:
    """Run Helm."""
    if shutil.which("helm") is None:
        pytest.skip("no helm here; scripts/tools brings it")
    return run_helm


@pytest.fixture(scope="session")
def render(helm: Callable[..., str]) -> Render:
    """The manifests of a release `hai` in namespace `lab`; values beside the least that is needed."""

    @cache
    def rendered(given: str) -> str:
        return helm("template", "hai", str(CHART), "--namespace=lab", "--values=-", given=given)

    def made(**values: Any) -> list[Body]:
        text = rendered(json.dumps({**LEAST, **values}))
        return [body for body in yaml.load_all(text, yaml.CSafeLoader) if body]

    return made


def one(manifests: list[Body], kind: str, name: str = "hai") -> Body:
    """Return the object of this kind and name."""
    (found,) = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name]
    return found
