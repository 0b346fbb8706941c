"""Is storage slow: does each answer take a round trip, as over a network?"""

from __future__ import annotations

TRIAL_SECONDS = 0.05  # too little to say anything
ENTRY_SECONDS = 50e-6  # listed and looked at; a disk of this machine takes 3e-6


def is_slow(seconds: float, entries: int) -> bool:
    """Whether so many entries should not have taken so long."""
    return seconds > max(TRIAL_SECONDS, ENTRY_SECONDS * entries)
