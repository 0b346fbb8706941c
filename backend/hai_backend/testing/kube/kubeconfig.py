"""A kubeconfig for the fake server."""

from __future__ import annotations

from pathlib import Path

import yaml


def write_kubeconfig(path: Path, url: str) -> Path:
    """One cluster, one user without secrets, one context."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "tester", "user": {"token": "fake"}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "tester"}}],
        "current-context": "fake",
    }
    path.write_text(yaml.safe_dump(config))
    return path
