"""Volumes as directories below the pod's own; what several pods share lies below the kubelet's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.kubelet.config_sources import ConfigSources, Data, MissingError

_FILES = ("secret", "configMap", "downwardAPI", "projected")


def make_volumes(spec: Body, pod: Path, shared: Path, supplies: ConfigSources) -> dict[str, Path]:
    """Directories by the names of the volumes. Raises MissingError."""
    return {v["name"]: _make(v, pod, shared, supplies) for v in spec.get("volumes") or []}


def _make(volume: Body, pod: Path, shared: Path, supplies: ConfigSources) -> Path:
    kind = next(k for k in volume if k != "name")
    source = volume[kind] or {}
    here = pod / "volumes" / str(volume["name"])
    if kind == "hostPath":
        return _host_path(source)
    if kind == "persistentVolumeClaim":
        here = shared / supplies.claim(source["claimName"])
    elif kind in _FILES:
        _write(here, _files(kind, source, supplies), int(source.get("defaultMode", 0o644)))
    elif kind != "emptyDir":  # NFS, CSI and the like: the same source is the same directory
        text = json.dumps([kind, source], sort_keys=True).encode()
        here = shared / hashlib.sha256(text).hexdigest()[:16]
    here.mkdir(parents=True, exist_ok=True)
    return here


def _host_path(source: Body) -> Path:
    path, kind = Path(source["path"]), source.get("type", "")
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch()
    elif kind == "Directory" and not path.is_dir():
        raise MissingError(f"hostPath type check failed: {path} is not a directory")
    elif kind == "File" and not path.is_file():
        raise MissingError(f"hostPath type check failed: {path} is not a file")
    return path


def _files(kind: str, source: Body, supplies: ConfigSources) -> Data:
    if kind == "projected":
        rows = [
            _files(k, s, supplies) for row in source.get("sources") or [] for k, s in row.items()
        ]
        return {name: data for row in rows for name, data in row.items()}
    if kind == "downwardAPI":
        return {i["path"]: _downward(i, supplies).encode() for i in source.get("items") or []}
    if kind not in ("secret", "configMap"):
        return {}  # a service account's token: nobody would accept it
    plural = "secrets" if kind == "secret" else "configmaps"
    name = source.get("secretName") or source.get("name", "")
    data = supplies.data(plural, name, bool(source.get("optional")))
    return _chosen(data, source.get("items"), name)


def _downward(item: Body, supplies: ConfigSources) -> str:
    if "fieldRef" in item:
        return supplies.field(item["fieldRef"]["fieldPath"])
    return supplies.resource(item["resourceFieldRef"], "")


def _chosen(data: Data, items: list[Mapping[str, Any]] | None, name: str) -> Data:
    if items is None:
        return data
    for item in items:
        if item["key"] not in data:
            raise MissingError(f"references non-existent key {item['key']} in {name}")
    return {item["path"]: data[item["key"]] for item in items}


def _write(directory: Path, files: Data, mode: int) -> None:
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
