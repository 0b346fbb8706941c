"""What all handlers of this server share."""

from __future__ import annotations

from dataclasses import dataclass

from hai_jupyter.hub import Hub
from hai_jupyter.link import Link
from hai_jupyter.places import Places
from hai_jupyter.streams import Streams


@dataclass(frozen=True, slots=True)
class Backend:
    """The connection, the hub of live streams, the count of logs that are followed, and where files are."""

    link: Link
    hub: Hub
    logs: Streams
    places: Places
