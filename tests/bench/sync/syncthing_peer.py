"""Syncthing as a peer of the benchmark: two instances on loopback, one that only sends and one that only receives.

The sender's folder is paused until the first sync, so that the first push is timed from there. Syncthing has no command
that waits. Both sides are polled until they report the same state.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.sync.sync_peers import Peer, running, wait_for
from tests.ports import free_port

_KEY = "bench"
_SECONDS = 900.0
_ENVIRONMENT = {"STNOUPGRADE": "1", "STNORESTART": "1"}
_CONFIG = """<configuration version="36">
<folder id="f" label="f" path="{path}" type="{kind}" rescanIntervalS="3600" fsWatcherEnabled="true"
 fsWatcherDelayS="1" ignorePerms="false" autoNormalize="true" paused="{paused}">
<device id="{own}"/><device id="{other}"/><minDiskFree unit="">0</minDiskFree></folder>
<device id="{own}" name="own"><address>dynamic</address></device>
<device id="{other}" name="other" compression="metadata"><address>tcp://127.0.0.1:{other_port}</address></device>
<gui enabled="true" tls="false"><address>127.0.0.1:{api}</address><apikey>{key}</apikey></gui>
<options><listenAddress>tcp://127.0.0.1:{port}</listenAddress><startBrowser>false</startBrowser>
<globalAnnounceEnabled>false</globalAnnounceEnabled><localAnnounceEnabled>false</localAnnounceEnabled>
<relaysEnabled>false</relaysEnabled><natEnabled>false</natEnabled><urAccepted>-1</urAccepted>
<autoUpgradeIntervalH>0</autoUpgradeIntervalH><reconnectionIntervalS>1</reconnectionIntervalS>
<crashReportingEnabled>false</crashReportingEnabled></options></configuration>"""


@dataclass(slots=True)
class Side:
    """One instance."""

    home: Path
    folder: Path
    id: str
    port: int
    api: int

    def ask(self, path: str, body: Any = None, method: str = "GET") -> Any:
        """Make one call of the REST interface, and return the answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.api}/rest/{path}", data, {"X-API-Key": _KEY}, method=method
        )
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            told = answer.read()
        return json.loads(told) if told.strip() else None

    def state(self) -> dict[str, Any]:
        """Return the state of the folder, or an empty dict while the instance is not ready."""
        try:
            return dict(self.ask("db/status?folder=f"))
        except (urllib.error.URLError, ConnectionError):
            return {}


@contextmanager
def syncthing(source: Path, work: Path) -> Iterator[Peer]:
    """Over TLS, as it always is."""
    target = work / "there"
    sides = [_side(work / "st-a", source), _side(work / "st-b", target)]
    for one, other, kind in ((*sides, "sendonly"), (*reversed(sides), "receiveonly")):
        _configure(one, other, kind, paused=one is sides[0])
    command = ["syncthing", "serve", "--no-browser", "--no-restart", "--home"]
    with (
        running([*command, str(sides[0].home)], work, _ENVIRONMENT) as here,
        running([*command, str(sides[1].home)], work, _ENVIRONMENT) as there,
    ):
        for side in sides:
            wait_for(side.api)
        yield Peer("syncthing", _Syncing(*sides), target, [here.pid, there.pid])


def _side(home: Path, folder: Path) -> Side:
    (folder / ".stfolder").mkdir(parents=True, exist_ok=True)
    command = ["syncthing", "generate", f"--home={home}", "--no-default-folder"]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **_ENVIRONMENT})
    found = re.search(r'<device id="([A-Z0-9-]+)"', (home / "config.xml").read_text())
    assert found is not None, "syncthing generated no device"
    return Side(home, folder, found[1], free_port(), free_port())


def _configure(own: Side, other: Side, kind: str, *, paused: bool) -> None:
    text = _CONFIG.format(
        path=own.folder,
        kind=kind,
        paused=str(paused).lower(),
        own=own.id,
        other=other.id,
        other_port=other.port,
        port=own.port,
        api=own.api,
        key=_KEY,
    )
    (own.home / "config.xml").write_text(text)


class _Syncing:
    """Syncs when called: the first call resumes the folder, later calls request a scan."""

    def __init__(self, here: Side, there: Side) -> None:
        self._here, self._there = here, there
        self._began = False

    def __call__(self) -> None:
        if self._began:
            self._here.ask("db/scan?folder=f", {}, "POST")
        else:
            self._here.ask("config/folders/f", {"paused": False}, "PATCH")
        self._began = True
        ends = time.monotonic() + _SECONDS
        while not (self._agree() and self._same_stats()):
            if time.monotonic() > ends:
                raise RuntimeError("syncthing: the sides do not agree")
            time.sleep(0.05)

    def _agree(self) -> bool:
        here, there = self._here.state(), self._there.state()
        if not (here and there) or not here["state"] == there["state"] == "idle":
            return False
        same = all(here[key] == there[key] for key in ("localFiles", "localBytes"))
        return same and here["localFiles"] > 0 and there["needTotalItems"] == 0

    def _same_stats(self) -> bool:
        """Compare all files, because Syncthing's own report can be one exchange late."""
        for folder, names, files in os.walk(self._here.folder):
            names[:] = [name for name in names if not name.startswith(".st")]
            for name in files:
                mine = Path(folder, name)
                theirs = self._there.folder / mine.relative_to(self._here.folder)
                if not _alike(mine, theirs):
                    return False
        return True


def _alike(mine: Path, theirs: Path) -> bool:
    try:
        here, there = mine.stat(), theirs.stat()
    except FileNotFoundError:
        return False
    return (here.st_size, int(here.st_mtime)) == (there.st_size, int(there.st_mtime))
