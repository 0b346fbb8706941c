"""Stored wheels are always complete."""

from __future__ import annotations

import errno
import os
from hashlib import sha256
from pathlib import Path

import pytest

from hai_backend.environments.wheels import Wheels

DATA = b"wheel"
HASH = sha256(DATA).hexdigest()


def test_a_wheel_that_does_not_fit_on_the_disk_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    wheels = Wheels(tmp_path)
    upload = wheels.begin_upload(HASH, "mine-1-py3-none-any.whl")
    upload.add(DATA)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        upload.finish()
    upload.discard()
    assert wheels.list_missing([HASH]) == [HASH]
    assert list(tmp_path.iterdir()) == []
