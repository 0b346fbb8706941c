"""Settings of the Python interpreter for a server."""

from __future__ import annotations

import gc
import resource

import pytest

from hai_backend import runtime
from hai_backend.runtime import no_garbage_collection


def _fails() -> None:
    with no_garbage_collection():
        assert not gc.isenabled()
        raise ValueError("halfway")


def test_the_collector_rests_and_comes_back_whatever_happens() -> None:
    with pytest.raises(ValueError, match="halfway"):
        _fails()
    assert gc.isenabled()


def test_what_was_built_is_never_looked_at_again() -> None:
    with no_garbage_collection():
        built = [[n] for n in range(1000)]
    try:
        young = {id(thing) for thing in gc.get_objects()}
        assert not young & {id(thing) for thing in built}
    finally:
        gc.unfreeze()


def test_many_files_may_be_open() -> None:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, most), most))
    try:
        runtime.raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(16_384, most), most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
