"""A task's spec as JSON text: readable by people, with every field written.

Every field is written, so that a later change of a default changes no stored task. Keys that this version does not
know are skipped, and missing ones take their default: a database may have been written by a newer or an older server.
"""

from __future__ import annotations

import msgspec

from hai_backend.domain.spec import TaskSpec

_encode = msgspec.json.Encoder(enc_hook=dict).encode  # any mapping is written as a dict
load_spec = msgspec.json.Decoder(TaskSpec).decode
"""The spec that `dump_spec` wrote, in this or another version of the server."""


def dump_spec(spec: TaskSpec) -> str:
    """The spec as one line of JSON."""
    return _encode(spec).decode()
