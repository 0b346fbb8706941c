"""A Jupyter server with the extension forks without gRPC's fork handlers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import asyncio, os
import hai_jupyter
{loading}
from grpc import aio

async def call():
    async with aio.insecure_channel("127.0.0.1:1") as channel:
        try:
            await channel.unary_unary("/a/b")(b"", timeout=20)
        except aio.AioRpcError:
            if (child := os.fork()) == 0:
                os._exit(0)
            os.waitpid(child, 0)

async def calls():
    for _ in range(30):  # what its threads do just then decides whether a handler says so
        await call()

asyncio.run(calls())
print(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
"""


@pytest.mark.parametrize(
    ("loading", "chosen", "disturbed"),
    [
        pytest.param("pass", None, True, id="grpc_alone"),
        pytest.param(
            "hai_jupyter._jupyter_server_extension_points()", None, False, id="in_jupyter"
        ),
        pytest.param("from hai_jupyter import load_grpc; load_grpc()", None, False, id="loaded"),
        pytest.param(
            "hai_jupyter._jupyter_server_extension_points()", "true", True, id="by_choice"
        ),
    ],
)
def test_a_fork_calls_handlers_of_grpc(loading: str, chosen: str | None, disturbed: bool) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "GRPC_ENABLE_FORK_SUPPORT"}
    environment["GRPC_VERBOSITY"] = "info"  # importing `hai` silences gRPC in its process
    if chosen is not None:
        environment["GRPC_ENABLE_FORK_SUPPORT"] = chosen
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(loading=loading)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("fork" in done.stderr) == disturbed
    assert done.stdout.strip() == str(chosen)
