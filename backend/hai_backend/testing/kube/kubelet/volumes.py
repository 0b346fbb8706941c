"""Creates the volumes of pods as directories, below the directory of the pod, or in a directory for shared volumes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.kubelet.config_sources import ConfigSources, Data, MissingError

_FILES = ("secret", "configMap", "downwardAPI", "projected")


def make_volumes(spec: Body, pod: Path, shared: Path, sources: ConfigSources) -> dict[str, Path]:
    """Create the volumes of a pod, and return their paths by name. Raises MissingError."""
    return {v["name"]: _make(v, pod, shared, sources) for v in spec.get("volumes") or []}


def _make(volume: Body, pod: Path, shared: Path, sources: ConfigSources) -> Path:
    kind = next(k for k in volume if k != "name")
    source = volume[kind] or {}
    directory = pod / "volumes" / str(volume["name"])
    if kind == "hostPath":
        return _host_path(source)
    if kind == "persistentVolumeClaim":
        directory = shared / sources.claim_uid(source["claimName"])
    elif kind in _FILES:
        _write(directory, _files(kind, source, sources), int(source.get("defaultMode", 0o644)))
    elif (
        kind != "emptyDir"
    ):  # NFS, CSI and others; volumes with the same source share one directory
        text = json.dumps([kind, source], sort_keys=True).encode()
        directory = shared / hashlib.sha256(text).hexdigest()[:16]
    directory.mkdir(parents=True, exist_ok=True)
    return directory


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


def _files(kind: str, source: Body, sources: ConfigSources) -> Data:
    if kind == "projected":
        rows = [
            _files(k, s, sources) for row in source.get("sources") or [] for k, s in row.items()
        ]
        return {name: data for row in rows for name, data in row.items()}
    if kind == "downwardAPI":
        return {i["path"]: _downward(i, sources).encode() for i in source.get("items") or []}
    if kind not in ("secret", "configMap"):
        return {}  # the token of a service account, which the fake cluster does not use
    plural = "secrets" if kind == "secret" else "configmaps"
    name = source.get("secretName") or source.get("name", "")
    data = sources.data(plural, name, bool(source.get("optional")))
    return _select_items(data, source.get("items"), name)


def _downward(item: Body, sources: ConfigSources) -> str:
    if "fieldRef" in item:
        return sources.field(item["fieldRef"]["fieldPath"])
    return sources.resource(item["resourceFieldRef"], "")


def _select_items(data: Data, items: list[Mapping[str, Any]] | None, name: str) -> Data:
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
