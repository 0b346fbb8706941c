"""Moved; re-exported until the last import follows."""

from hai.host.memory import keep_memory as keep_memory
