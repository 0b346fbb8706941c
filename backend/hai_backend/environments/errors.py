"""Errors of environments. An environment that does not exist or cannot be read is reported by the OSError."""

from __future__ import annotations


class BrokenEnvironment(Exception):
    """The files do not match the layout; the message tells the owner what is wrong."""
