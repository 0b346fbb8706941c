"""How CPython is set for a server."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys

import pytest

from hai_backend import interpreter
from hai_backend.interpreter import built_to_stay

_FAULTS = """
import resource
from hai_backend import interpreter
interpreter.keep_memory()

def message() -> None:
    bytes(bytearray(4 << 20))

message()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    message()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _fails() -> None:
    with built_to_stay():
        assert not gc.isenabled()
        raise ValueError("halfway")


def test_the_collector_rests_and_comes_back_whatever_happens() -> None:
    with pytest.raises(ValueError, match="halfway"):
        _fails()
    assert gc.isenabled()


def test_what_was_built_is_never_looked_at_again() -> None:
    with built_to_stay():
        built = [[n] for n in range(1000)]
    try:
        young = {id(thing) for thing in gc.get_objects()}
        assert not young & {id(thing) for thing in built}
    finally:
        gc.unfreeze()


def test_memory_of_one_message_serves_the_next() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 5000  # 50 messages of 1024 pages each, twice


def test_many_files_may_be_open() -> None:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, most), most))
    try:
        interpreter.open_many()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(16_384, most), most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
