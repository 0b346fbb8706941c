"""Wheels are kept under the hash of their bytes, so they are kept whole or not at all."""

from __future__ import annotations

import errno
import os
from hashlib import sha256
from pathlib import Path

import pytest

from hai_backend.environments.wheels import Wheels

DATA = b"wheel"
HASH = sha256(DATA).hexdigest()


def test_a_wheel_that_the_disk_did_not_take_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    wheels = Wheels(tmp_path)
    upload = wheels.receive(HASH, "mine-1-py3-none-any.whl")
    upload.add(DATA)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        upload.finish()
    upload.discard()
    assert wheels.missing([HASH]) == [HASH]
    assert list(tmp_path.iterdir()) == []
