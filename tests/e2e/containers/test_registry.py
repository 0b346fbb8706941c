"""A real registry with a password. The tests push images to it, and a real server reads their digests and settings."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from hai.client import errors
from hai.client.client import Client
from hai.v1.image_pb2 import Image, Registry
from hai.v1.task_spec_pb2 import TaskSpec
from hai_backend.domain.node import Node
from hai_backend.launch.fake import FakeLauncher
from tests.support.servers import running_server

HTPASSWD = "robot:$2b$04$7pKXjVNVDUdjiCvcYP.4IublrqaA6tZSNL8DcSt9sDNaenkpgiX3q\n"
LOGIN = {"Authorization": aiohttp.encode_basic_auth("robot", "s3cret pass")}
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
SETTINGS = """version: 0.1
log: {{level: info}}
storage: {{filesystem: {{rootdirectory: {home}/images}}}}
http: {{addr: "127.0.0.1:0"}}
auth: {{htpasswd: {{realm: test, path: {home}/htpasswd}}}}
"""


@asynccontextmanager
async def registry(home: Path) -> AsyncIterator[str]:
    """Debian's docker-registry on a free port; answers with host:port."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed (Debian: apt-get install docker-registry)")
    (home / "htpasswd").write_text(HTPASSWD)
    (home / "config.yml").write_text(SETTINGS.format(home=home))
    server = await asyncio.create_subprocess_exec(
        program,
        "serve",
        str(home / "config.yml"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield await asyncio.wait_for(_listening(server), 30)
    finally:
        server.kill()
        await server.communicate()


async def _listening(server: asyncio.subprocess.Process) -> str:
    assert server.stderr is not None
    async for line in server.stderr:
        found = line.decode().partition("listening on ")[2]
        if found:
            return found.split('"')[0].strip().removesuffix(",")
    raise AssertionError("docker-registry ended")


async def push(host: str, name: str, tag: str, content: bytes) -> str:
    """Push an image of one small layer, and return its digest."""
    async with aiohttp.ClientSession(headers=LOGIN) as session:
        blob = "sha256:" + hashlib.sha256(content).hexdigest()
        async with session.post(f"http://{host}/v2/{name}/blobs/uploads/") as begun:
            place = begun.headers["Location"]
        mark = "&" if "?" in place else "?"
        async with session.put(f"{place}{mark}digest={blob}", data=content) as done:
            assert done.status == 201, await done.text()
        part = {"mediaType": "application/octet-stream", "digest": blob, "size": len(content)}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": part, "layers": []}
        async with session.put(
            f"http://{host}/v2/{name}/manifests/{tag}",
            data=json.dumps(manifest),
            headers={"Content-Type": MANIFEST},
        ) as put:
            assert put.status == 201, await put.text()
            return put.headers["Docker-Content-Digest"]


def spec(name: str, image: str) -> TaskSpec:
    made = TaskSpec(version=2, name=name)
    made.spec.entrypoint, made.resource.image = "train.py", image
    return made


async def test_images_of_a_real_registry(tmp_path: Path) -> None:
    launcher = FakeLauncher([Node("n0")])
    async with (
        registry(tmp_path) as host,
        running_server(tmp_path / "hai", launcher=launcher, image_check="require") as server,
        Client(server.profile) as client,
    ):
        first = await push(host, "lab/torch", "1", b"one")
        second = await push(host, "lab/torch", "2", b"two")
        await client.images.set(Image(name="torch", reference=f"{host}/lab/torch:1"))
        await client.images.set_registry(Registry(prefix=host, plain_http=True))
        with pytest.raises(errors.HaiError, match="without an account"):
            await client.images.check("torch")
        robot = Registry(prefix=f"{host}/lab", username="robot", plain_http=True)
        await client.images.set_registry(robot, "wrong")
        with pytest.raises(errors.HaiError, match="as robot"):
            await client.images.check("torch")
        await client.images.set_registry(robot, "s3cret pass")
        assert (await client.images.check("torch")).digest == first != second
        assert list((await client.images.tags("torch")).tags) == ["1", "2"]
        task = await client.tasks.create(spec("a", "torch"))
        assert task.spec.resource.image == f"{host}/lab/torch:1@{first}"
        again = await client.tasks.create(spec("b", task.spec.resource.image))
        assert again.spec.resource.image == task.spec.resource.image
        with pytest.raises(errors.Invalid, match="has no image"):
            await client.tasks.create(spec("c", f"{host}/lab/torch:3"))
