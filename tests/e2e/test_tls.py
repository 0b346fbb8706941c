"""TLS from end to end: the client and the agents check the server's certificate, and plaintext is refused."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.client.errors import Unreachable
from hai.v1.task_pb2 import TaskOutcome
from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec
from hai_backend.launch.process import sweep
from hai_backend.testing.server import running_server

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificate"
)


def certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*make, *subject, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


async def test_a_task_runs_over_tls_and_plaintext_gets_no_answer(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    program = tmp_path / "hello.py"
    program.write_text("print('hello')")
    home = tmp_path / "home"
    try:
        async with running_server(home, nodes=1, tls_cert=str(cert), tls_key=str(key)) as server:
            secure = replace(server.profile, ca=str(cert))
            async with Client(secure) as client:
                spec = TaskSpec(version=2, name="hello", spec=ProgramSpec(entrypoint=str(program)))
                task = await client.tasks.create(spec)
                task = await client.tasks.wait(task.id, timeout=30)
                assert task.outcome == TaskOutcome.TASK_OUTCOME_SUCCEEDED
            async with Client(server.profile) as plain:
                with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
                    await plain.server.info()
    finally:
        sweep(home)
