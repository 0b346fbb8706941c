"""HAI Platform in JupyterLab: a server extension, a prebuilt front end, kernels and magics.

Nothing is loaded here: Jupyter imports this package only to ask where its parts are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "hai-jupyter"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from hai_jupyter.grpc_fork import load_grpc

    load_grpc()
    from hai_jupyter.app import HaiJupyter

    return [{"module": "hai_jupyter", "app": HaiJupyter}]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext hai_jupyter` brings the magics."""
    from hai_jupyter.grpc_fork import load_grpc

    load_grpc()
    from hai_jupyter.magics import HaiMagics

    shell.register_magics(HaiMagics)
