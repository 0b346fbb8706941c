"""HAI Platform in JupyterLab: a server extension, a prebuilt front end, kernels and magics.

Jupyter imports this package only to ask where its parts are, so the parts are imported in the functions.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "hai-jupyter"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    load_grpc()
    from hai_jupyter.app import HaiJupyter

    return [{"module": "hai_jupyter", "app": HaiJupyter}]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics, for `%load_ext hai_jupyter`."""
    load_grpc()
    from hai_jupyter.magics import HaiMagics

    shell.register_magics(HaiMagics)


_FORK_VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"


def load_grpc() -> None:
    """Import grpc without its fork handlers, before any other import of grpc.

    JupyterLab forks for each terminal. With the handlers, one terminal in twenty stayed empty, because the child died
    in them before it became a shell (grpc/grpc#41455). grpc reads the variable at import; children do not inherit it.
    """
    chosen = os.environ.get(_FORK_VARIABLE)
    os.environ.setdefault(_FORK_VARIABLE, "false")
    import grpc  # noqa: F401

    if chosen is None:
        del os.environ[_FORK_VARIABLE]
