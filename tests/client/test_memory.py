"""Memory that a process keeps for the next message."""

from __future__ import annotations

import subprocess
import sys

_FAULTS = """
import resource
from hai.client.memory import keep_memory
keep_memory()

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
