"""Moved; re-exported until the last import follows."""

from hai.host.disk_reserve import room_of as room_of
