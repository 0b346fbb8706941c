"""What all handlers of this server share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hai_jupyter.hub import Hub
from hai_jupyter.link import Link
from hai_jupyter.places import Places
from hai_jupyter.streams import Streams
from hai_jupyter.uses import Uses


@dataclass(frozen=True, slots=True)
class Backend:
    """The connection, the hub of live streams, the count of logs that are followed, where files, environments and the
    manual are, and what tasks use."""

    link: Link
    hub: Hub
    logs: Streams
    places: Places
    environments: Path
    manual: str = ""
    uses: Uses = field(default_factory=Uses)
