"""Generate the gRPC stubs beside their .proto files: a hatch build hook, also run by `make proto`.

Hatch runs one custom hook a project, so the parts of the JupyterLab extension are added here too.
"""

from __future__ import annotations

import runpy
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from grpc_tools import protoc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).parent


def generate() -> None:
    """Compile every hai/v1/*.proto to messages, services and their type stubs."""
    protos = sorted(str(p.relative_to(HERE)) for p in HERE.glob("hai/v1/*.proto"))
    outs = [f"--{kind}_out={HERE}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    well_known = files("grpc_tools") / "_proto"
    argv = ["protoc", f"-I{HERE}", f"-I{well_known}", *_plugins(), *outs, *protos]
    if protoc.main(argv) != 0:
        raise RuntimeError("protoc failed; its message stands above")


def _plugins() -> list[str]:
    beside = Path(sys.executable).parent  # a virtual environment that is not activated
    names = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
    return [f"--plugin={name}={shutil.which(name) or beside / name}" for name in names]


class StubsHook(BuildHookInterface[Any]):
    """Called by hatchling before it collects the files of a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        generate()
        if self.target_name == "wheel":
            lab = runpy.run_path(str(HERE.parent / "jupyter_ext" / "labextension.py"))
            build_data["shared_data"].update(lab["shared_data"](editable=version == "editable"))


if __name__ == "__main__":
    generate()
