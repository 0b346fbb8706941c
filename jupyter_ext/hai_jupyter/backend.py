"""What all handlers of this server share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hai_jupyter.client_provider import ClientProvider
from hai_jupyter.contents_path import ContentsPaths
from hai_jupyter.live.log_streams import LogStreams
from hai_jupyter.live.stream_manager import StreamManager
from hai_jupyter.live.usage_cache import UsageCache


@dataclass(frozen=True, slots=True)
class Backend:
    """The connection, the hub of live streams, the count of logs that are followed, where files, environments and the
    manual are, and what tasks use."""

    link: ClientProvider
    hub: StreamManager
    logs: LogStreams
    places: ContentsPaths
    environments: Path
    manual: str = ""
    uses: UsageCache = field(default_factory=UsageCache)
