"""What can be wrong with an environment: it is broken. That it is absent, or not to be read, is the OSError."""

from __future__ import annotations


class Broken(Exception):
    """Its files are not as the layout says; the message says what, to its owner."""
