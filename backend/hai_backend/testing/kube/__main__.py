"""Runs a fake cluster, whose pods are local processes, until SIGTERM or SIGINT.

    python -m hai_backend.testing.kube --nodes 3 --home DIR

It writes DIR/kubeconfig, and prints the path of that file when the server accepts requests.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from hai_backend.testing.kube.cluster import FakeCluster
from hai_backend.testing.kube.kubelet.process import ProcessKubelet
from hai_backend.testing.kube.resources import custom

_RUNS = custom("hai.dev", "v1", "runs", "Run")


async def _serve(home: Path, nodes: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    pods = home / "pods"
    async with FakeCluster(
        nodes, kubelet=lambda api: ProcessKubelet(api, pods), custom=[_RUNS], verbose=True
    ) as cluster:
        print(cluster.kubeconfig(home / "kubeconfig"), flush=True)
        await stopped.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hai_backend.testing.kube")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--home", type=Path, required=True)
    options = parser.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    asyncio.run(_serve(options.home, options.nodes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
