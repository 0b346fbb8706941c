"""Decodes protobuf bodies. Only the kinds are implemented that Helm sends in this form.

The envelope consists of `k8s`, a zero byte, and a message with the kind and the raw bytes. Field numbers are those of
the published .proto files.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message

MAGIC = b"k8s\x00"
FORM = "application/vnd.kubernetes.protobuf"
_Field = descriptor_pb2.FieldDescriptorProto
_TEXT, _BYTES, _NUMBER = _Field.TYPE_STRING, _Field.TYPE_BYTES, _Field.TYPE_INT64
_TEXTS = {"key": (1, _TEXT), "value": (2, _TEXT)}
_MESSAGES: Mapping[str, Mapping[str, tuple[int, int | str]]] = {
    "TypeMeta": {"apiVersion": (1, _TEXT), "kind": (2, _TEXT)},
    "Unknown": {"typeMeta": (1, "TypeMeta"), "raw": (2, _BYTES)},
    "Label": _TEXTS,
    "Annotation": _TEXTS,
    "Datum": {"key": (1, _TEXT), "value": (2, _BYTES)},
    "ObjectMeta": {
        **{"name": (1, _TEXT), "namespace": (3, _TEXT), "uid": (5, _TEXT)},
        **{"resourceVersion": (6, _TEXT)},
        **{"labels": (11, "Label*"), "annotations": (12, "Annotation*")},
    },
    "Secret": {"metadata": (1, "ObjectMeta"), "data": (2, "Datum*"), "type": (3, _TEXT)},
    "Namespace": {"metadata": (1, "ObjectMeta")},
    "DeleteOptions": {"gracePeriodSeconds": (1, _NUMBER), "propagationPolicy": (4, _TEXT)},
}


def read(body: bytes) -> Any:
    """Decode a body to the value of its JSON form. Raises ValueError."""
    try:
        envelope = _message("Unknown", body.removeprefix(MAGIC))
        meta: Any = envelope.typeMeta  # type: ignore[attr-defined]
        return {
            "apiVersion": meta.apiVersion,
            "kind": meta.kind,
            **_plain(_message(meta.kind, envelope.raw)),  # type: ignore[attr-defined]
        }
    except (DecodeError, KeyError) as error:
        raise ValueError(f"cannot be decoded: {error}") from error


def _message(name: str, raw: bytes) -> Message:
    made: Message = message_factory.GetMessageClass(
        _pool().FindMessageTypeByName(f"kube.{name}")
    ).FromString(raw)
    return made


def _plain(message: Message) -> dict[str, Any]:
    """Convert a message to its JSON form: lists of pairs become maps, and empty metadata is removed."""
    made = MessageToDict(message)
    if "metadata" in made:
        made["metadata"] = {key: value for key, value in made["metadata"].items() if value}
    for table in (made, made.get("metadata", {})):
        for name in ("data", "labels", "annotations"):
            if name in table:
                table[name] = {pair["key"]: pair.get("value", "") for pair in table[name]}
    if "gracePeriodSeconds" in made:
        made["gracePeriodSeconds"] = int(made["gracePeriodSeconds"])
    return made


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="kube.proto", package="kube", syntax="proto2")
    for name, fields in _MESSAGES.items():
        made = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add(made, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add(made: descriptor_pb2.DescriptorProto, name: str, number: int, kind: int | str) -> None:
    repeated = isinstance(kind, str) and kind.endswith("*")
    label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    field = made.field.add(name=name, json_name=name, number=number, label=label)
    if isinstance(kind, str):
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".kube.{kind.removesuffix('*')}"
    else:
        field.type = kind  # type: ignore[assignment]
