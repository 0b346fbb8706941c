"""A process keeps memory for the next message, also if another thread reads it."""

from __future__ import annotations

import subprocess
import sys

_FAULTS = """
import resource
from hai.host.memory import retain_freed_memory
retain_freed_memory()

def message() -> None:
    bytes(bytearray(4 << 20))

message()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    message()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_memory_of_one_message_serves_the_next() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 5000  # 50 messages of 1024 pages each, twice


_THREADS = """
import ctypes, resource
from concurrent.futures import ThreadPoolExecutor
from hai.host.memory import retain_freed_memory
retain_freed_memory(arenas=1)
libc = ctypes.CDLL(None)
libc.malloc.argtypes, libc.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
libc.free.argtypes = (ctypes.c_void_p,)

def message(_: int) -> None:
    parts = [libc.malloc(64 << 10) for _ in range(64)]
    for part in parts:
        ctypes.memset(part, 1, 64 << 10)
    for part in parts:
        libc.free(part)

threads = [ThreadPoolExecutor(1) for _ in range(8)]
threads[0].submit(message, 0).result()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for thread in threads:
    thread.submit(message, 0).result()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_threads_share_what_was_kept() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _THREADS], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 3000  # 8 messages of 1024 pages each
