"""Starts JupyterLab with the extension in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from hai.client.profile import Profile

_START_SECONDS = 60.0
_CONFIG = """
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.port = 0
c.ServerApp.open_browser = False
c.ServerApp.allow_root = True
c.ServerApp.base_url = "/user/alice/"
c.IdentityProvider.token = "jupyter-secret"
c.ServerApp.root_dir = {root!r}
c.ServerApp.jpserver_extensions = {{"hai_jupyter": True, "jupyterlab": True}}
c.LabApp.extra_labextensions_path = [{extensions!r}]
c.LabApp.app_settings_dir = {settings!r}
c.HaiJupyter.linger = 0.2
"""
_OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}
}
_PACKAGE = Path(__file__).parents[2] / "jupyter_ext" / "hai_jupyter"


@dataclass
class Lab:
    """A running JupyterLab."""

    url: str
    token: str
    root: Path
    process: subprocess.Popen[bytes]

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_lab(home: Path, config: Path, *, lab: bool = True, **variables: str) -> Lab:
    """Start JupyterLab with the profile in `config`, and wait until it listens."""
    root, jupyter_home = home / "notebooks", home / "jupyter"
    for directory in (root, jupyter_home / "settings", jupyter_home / "extensions"):
        directory.mkdir(parents=True, exist_ok=True)
    (jupyter_home / "settings" / "overrides.json").write_text(json.dumps(_OVERRIDES))
    link = jupyter_home / "extensions" / "hai-jupyter"
    if not link.exists():
        link.symlink_to(_PACKAGE / "labextension")
    extensions, settings = str(jupyter_home / "extensions"), str(jupyter_home / "settings")
    text = _CONFIG.format(root=str(root), extensions=extensions, settings=settings)
    (jupyter_home / "config.py").write_text(text)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("HAI_", "MARSV2_", "JUPYTER"))},
        "HAI_CONFIG": str(config),
        "HOME": str(home),  # login shells read files of the home directory
        "JUPYTER_CONFIG_DIR": str(jupyter_home / "config"),
        "JUPYTER_DATA_DIR": str(jupyter_home / "data"),
        "JUPYTER_RUNTIME_DIR": str(jupyter_home / "runtime"),
        "IPYTHONDIR": str(jupyter_home / "ipython"),
        **variables,
    }
    kind = "jupyterlab" if lab else "jupyter_server"
    command = [sys.executable, "-m", kind, f"--config={jupyter_home / 'config.py'}"]
    with (home / "lab.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, cwd=root, stdout=log, stderr=log)
    return Lab(_listening(jupyter_home / "runtime", process, home), "jupyter-secret", root, process)


def write_profile(path: Path, profile: Profile) -> None:
    """Write a profile like `hai init`."""
    path.write_text(
        f'current = "test"\n[profiles.test]\nserver = "{profile.server}"\ntoken = "{profile.token}"\n'
    )


def _listening(runtime: Path, process: subprocess.Popen[bytes], home: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for found in runtime.glob("jpserver-*.json"):
            try:
                return str(json.loads(found.read_text())["url"])
            except ValueError:
                pass  # the file is not yet complete
        time.sleep(0.05)
    raise RuntimeError((home / "lab.log").read_text(errors="replace")[-4000:])
