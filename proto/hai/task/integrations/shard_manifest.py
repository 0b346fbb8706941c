"""The manifest of a sharded checkpoint: the metadata of torch.distributed.checkpoint, as JSON.

    {"format": 1, "id": "…",
     "files": {"rank00000.bin": {"size": …, "block_bytes": …, "digests": […]}},
     "tensors": {"model.weight": {"dtype": "float32", "size": [8, 4], "chunks": [{"offsets": [0, 0], "sizes": [4, 4],
                "file": "rank00000.bin", "start": 0, "length": 64}, …]}},
     "values": {"optimizer.lr": {"file": …, "start": …, "length": …}},
     "paths": {"model.weight": ["model", "weight"], …}}

A tensor consists of chunks, which are boxes of its elements in C order. A value is the output of torch.save. `paths`
are the keys of nested dictionaries that a planner has flattened. `start` and `length` count bytes in a file.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

_FORMAT = 1


@dataclass(frozen=True)
class RankFile:
    """The file of one rank, and the SHA-256 of each of its blocks in hexadecimal."""

    name: str
    size: int
    block_bytes: int
    digests: list[str] = field(repr=False)
    data: str = ""  # the name of its buffer while it is staged in memory; then it has no digests


@dataclass(frozen=True)
class StoredPart:
    """Where the bytes of a chunk or value are."""

    file: RankFile
    start: int
    length: int


def pack_manifest(metadata: Metadata, parts: dict[MetadataIndex, StoredPart]) -> bytes:
    """Return the manifest of the parts that all ranks have written.

    Raises TypeError if the planner has data of another kind than that of DefaultSavePlanner.
    """
    manifest: dict[str, Any] = {
        "format": _FORMAT,
        "id": str(uuid.uuid4()),  # so that no two checkpoints have the same name
        "files": {part.file.name: _pack_file(part.file) for part in parts.values()},
        "tensors": {},
        "values": {},
        "paths": _pack_paths(metadata.planner_data),
    }
    for name, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, TensorStorageMetadata):
            manifest["tensors"][name] = _pack_tensor(name, entry, parts)
        else:
            manifest["values"][name] = _pack_part(parts[MetadataIndex(name)])
    return json.dumps(manifest, separators=(",", ":")).encode()


def unpack_manifest(content: bytes) -> Metadata:
    """Return the metadata of a checkpoint. Its `storage_data` has a StoredPart for each index.

    Raises ValueError if another program or a later release wrote it.
    """
    manifest = json.loads(content)
    if manifest.get("format") != _FORMAT:
        raise ValueError(
            f"the checkpoint has format {manifest.get('format')}, this release reads format {_FORMAT}"
        )
    files = {name: RankFile(**entry) for name, entry in manifest["files"].items()}
    entries: dict[str, Any] = {name: BytesStorageMetadata() for name in manifest["values"]}
    parts = {
        MetadataIndex(name): _unpack_part(entry, files)
        for name, entry in manifest["values"].items()
    }
    for name, entry in manifest["tensors"].items():
        entries[name] = TensorStorageMetadata(
            TensorProperties(dtype=_dtype(entry["dtype"])),
            torch.Size(entry["size"]),
            [
                ChunkStorageMetadata(torch.Size(chunk["offsets"]), torch.Size(chunk["sizes"]))
                for chunk in entry["chunks"]
            ],
        )
        for chunk in entry["chunks"]:
            parts[MetadataIndex(name, chunk["offsets"])] = _unpack_part(chunk, files)
    paths = manifest["paths"]
    planner_data = paths and {name: tuple(path) for name, path in paths.items()}
    return Metadata(entries, planner_data, parts)


def _pack_tensor(
    name: str, entry: TensorStorageMetadata, parts: dict[MetadataIndex, StoredPart]
) -> dict[str, Any]:
    return {
        "dtype": str(entry.properties.dtype).removeprefix("torch."),
        "size": list(entry.size),
        "chunks": [
            {
                "offsets": list(chunk.offsets),
                "sizes": list(chunk.sizes),
                **_pack_part(parts[MetadataIndex(name, chunk.offsets)]),
            }
            for chunk in entry.chunks
        ],
    }


def _pack_file(file: RankFile) -> dict[str, Any]:
    return {name: value for name, value in asdict(file).items() if name != "data"}


def _pack_part(part: StoredPart) -> dict[str, Any]:
    return {"file": part.file.name, "start": part.start, "length": part.length}


def _unpack_part(entry: dict[str, Any], files: dict[str, RankFile]) -> StoredPart:
    return StoredPart(files[entry["file"]], entry["start"], entry["length"])


def _pack_paths(planner_data: Any) -> dict[str, list[str | int]] | None:
    if planner_data is None:
        return None
    if not isinstance(planner_data, dict) or not all(map(_is_path, planner_data.values())):
        raise TypeError(
            f"the planner has data of type {type(planner_data).__name__}, which cannot be saved: "
            "only the paths of DefaultSavePlanner can"
        )
    return {name: list(path) for name, path in planner_data.items()}


def _is_path(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(key, (str, int)) for key in value)


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name} is no data type of torch")
    return dtype
