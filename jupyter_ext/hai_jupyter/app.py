"""The server extension: its settings, the objects that handlers share, and the routes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from jupyter_core.paths import jupyter_path
from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from traitlets import Float, Int, Unicode

from hai.client.profile import Profile, load
from hai_jupyter.client_provider import ClientProvider
from hai_jupyter.contents_path import ContentsPaths
from hai_jupyter.handlers.base import SETTINGS_KEY, SharedState
from hai_jupyter.handlers.routes import routes
from hai_jupyter.kernels.environments import default_root
from hai_jupyter.kernels.kernels import add_environments
from hai_jupyter.live.log_streams import LogStreams
from hai_jupyter.live.state_store import StateStore
from hai_jupyter.live.stream_manager import Source, StreamManager
from hai_jupyter.live.watch_source import WatchSource
from hai_jupyter.preemption_notice import VARIABLE, PreemptionNotices


class HaiJupyter(ExtensionApp):
    """HAI Platform in JupyterLab. Connects to the platform when a page first asks for something."""

    name = "hai_jupyter"
    load_other_extensions = True

    profile = Unicode("", help="Stored profile to use; empty: the current one.").tag(config=True)
    server = Unicode("", help="Address of the platform; empty: the profile's.").tag(config=True)
    max_tasks = Int(10_000, help="Finished tasks that the panel lists at most.").tag(config=True)
    linger = Float(30.0, help="Seconds that streams outlive the last page.").tag(config=True)
    environments_root = Unicode(
        "", help="Where haienv keeps environments; empty: HAIENV_HOME."
    ).tag(config=True)
    manual = Unicode(
        "", help="Where the manual is, with {page}: https://…/{page}/; empty: no links to it."
    ).tag(config=True)
    max_log_streams = Int(32, help="Logs that may be followed at the same time.").tag(config=True)

    def initialize_settings(self) -> None:
        """Create the objects that handlers share."""
        provider = ClientProvider(self._profile)
        store = StateStore(self.max_tasks)
        store.set_facts(build=_front_end_build())
        sources: list[Source] = [WatchSource(provider, store, self.max_tasks)]
        if notice := os.environ.get(VARIABLE):
            sources.append(PreemptionNotices(Path(notice), store))
        add_environments(self._jupyter().kernel_spec_manager, self._environments_root())
        self.settings[SETTINGS_KEY] = SharedState(
            client_provider=provider,
            stream_manager=StreamManager(store, sources, self.linger),
            contents_paths=ContentsPaths(self._root(), self._allows_hidden_files()),
            logs=LogStreams(self.max_log_streams),
            environments=self._environments_root(),
            manual=self.manual,
        )

    def initialize_handlers(self) -> None:
        self.handlers.extend(routes())

    async def stop_extension(self) -> None:
        """Close the streams and the connection."""
        shared = cast(SharedState, self.settings[SETTINGS_KEY])
        await shared.stream_manager.close()
        await shared.client_provider.close()

    def _profile(self) -> Profile:
        return load(self.profile or None, self.server or None)

    def _jupyter(self) -> ServerApp:
        if self.serverapp is None:
            raise RuntimeError("the extension runs in a Jupyter server only")
        return self.serverapp

    def _root(self) -> Path:
        contents: Any = self._jupyter().contents_manager
        return Path(getattr(contents, "root_dir", None) or self._jupyter().root_dir)

    def _allows_hidden_files(self) -> bool:
        return bool(self._jupyter().contents_manager.allow_hidden)

    def _environments_root(self) -> Path:
        return Path(self.environments_root) if self.environments_root else default_root()


def _front_end_build() -> str:
    """Return the build number of the front end that this server delivers; empty if none is built."""
    folders = [Path(folder) / "hai-jupyter" for folder in jupyter_path("labextensions")]
    stamps = [f / "built-from.txt" for f in (Path(__file__).parent / "labextension", *folders)]
    return next((stamp.read_text()[:12] for stamp in stamps if stamp.exists()), "")
