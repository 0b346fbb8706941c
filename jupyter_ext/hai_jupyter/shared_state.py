"""The objects that all handlers of a server share."""

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
    """Connection, live streams, followed logs, paths of files and environments, URL of the manual, usage of tasks."""

    client_provider: ClientProvider
    stream_manager: StreamManager
    logs: LogStreams
    contents_paths: ContentsPaths
    environments: Path
    manual: str = ""
    usage_cache: UsageCache = field(default_factory=UsageCache)
