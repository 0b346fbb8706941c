"""The memory-mapped file that an agent and its programs share. Reading the suspend flag is one memory access.

Layout, little endian, 4096 bytes:

====  =====  ====================================================================================================
  0   u8     suspend flag: 0 none, 1 requested, 2 agreed (the step to stop before is at 16)
  8   i64    whole-life state
 16   i64    step before which every rank stops (valid when the flag is 2)
 64   i64    last step that was entered, one slot per LOCAL_RANK (96 slots); -1 none
1024  2 i64  bytes saved so far and bytes of the state, one slot per LOCAL_RANK (96 slots); 0 0 while it does not save

The agent writes the bytes 0-23. Each program writes only its own slots, from 64 on. Aligned 8-byte stores are atomic on
the supported machines, so no lock is needed.
"""

from __future__ import annotations

SIZE = 4096
FLAG = 0
WHOLE_LIFE_STATE = 8
STOP_STEP = 16
STEPS = 64
STEP_SLOTS = 96  # of both tables
SAVES = 1024

NONE = 0
REQUESTED = 1
AGREED = 2
