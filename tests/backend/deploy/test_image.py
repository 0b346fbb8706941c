"""The Dockerfile, the compose file and the health probe, as far as tests need no container runtime."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hai_backend import config
from tests.support.servers import running_server

from .conftest import DEPLOY

ROOT = DEPLOY.parents[1]
STEPS = re.sub(r"\\\n", "", re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.M))
LINES = [line.split(maxsplit=1) for line in STEPS.splitlines() if line.strip()]


def steps(word: str) -> list[str]:
    return [rest for name, rest in LINES if name == word]


def test_the_base_is_pinned_by_an_argument_and_no_tag_floats() -> None:
    assert [line.partition("=")[0] for line in steps("ARG")] == ["BASE"]
    assert re.fullmatch(r"BASE=python:3\.\d+-slim-\w+", steps("ARG")[0])
    assert [line.split()[0] for line in steps("FROM")] == ["${BASE}", "${BASE}"]


def test_the_image_runs_as_the_user_of_the_chart() -> None:
    chart = (DEPLOY / "chart" / "templates" / "server.yaml").read_text()
    assert steps("USER") == ["10001:10001"]
    assert LINES.index(["USER", "10001:10001"]) < LINES.index(["ENTRYPOINT", '["hai-server"]'])
    assert re.findall(r"runAs(?:User|Group): (\d+)", chart) == ["10001", "10001"]


def test_what_is_copied_exists_and_is_in_the_context() -> None:
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for line in steps("COPY"):
        *sources, _ = line.split()
        if sources[0].startswith("--from=build"):
            continue
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignore


def test_all_that_the_wheel_is_made_of_is_copied() -> None:
    import tomllib

    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], build["hooks"]["custom"]["path"]]
    copied = [source for line in steps("COPY") for source in line.split()[:-1]]
    for path in needed:
        assert any(Path(path).is_relative_to(source) for source in copied), path


def test_nothing_secret_is_in_the_image() -> None:
    assert not re.search(r"(?i)password|token|secret|api_?key", STEPS)
    assert not any("http" in line for line in steps("ADD") + steps("RUN"))


def test_paths_are_those_of_the_launcher_and_the_chart() -> None:
    from hai_backend.launch.manifests.agent import AGENT_IN_IMAGE

    chart = (DEPLOY / "chart" / "templates" / "server.yaml").read_text()
    assert f"assemble.py {AGENT_IN_IMAGE}" in STEPS
    (probe,) = re.findall(r"command: \[(\S+hai-health),", chart)
    assert f"backend/deploy/hai-health {probe}" in STEPS
    assert (DEPLOY / "hai-health").read_text().startswith("#!/opt/hai/server/bin/python -I\n")


COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_a_service_is_whole(name: str) -> None:
    service = COMPOSE["services"][name]
    assert {"image", "restart", "healthcheck"} <= service.keys()
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    for volume in service["volumes"]:
        assert volume.partition(":")[0] in COMPOSE["volumes"]
    assert set(service.get("depends_on", {})) <= COMPOSE["services"].keys()
    if "build" in service:
        context = DEPLOY / service["build"]["context"]
        assert (context / service["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")


@pytest.mark.parametrize("name", [n for n, s in COMPOSE["services"].items() if "build" in s])
def test_the_server_takes_the_settings_of_compose(name: str, tmp_path: Path) -> None:
    settings = config.load(tmp_path, {}, COMPOSE["services"][name]["environment"])
    assert settings.listen == "0.0.0.0:7450"
    assert settings.several == (name == "server-postgres")


@pytest.mark.skipif(shutil.which("docker") is None, reason="docker reads the file")
def test_docker_reads_the_file() -> None:
    compose = ["docker", "compose", "-f", str(DEPLOY / "compose.yaml"), "--profile", "postgres"]
    done = subprocess.run([*compose, "config", "--format=json"], capture_output=True, text=True)
    if "is not a docker command" in done.stderr or "unknown shorthand flag" in done.stderr:
        pytest.skip("this docker has no compose")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["services"].keys() == COMPOSE["services"].keys()


def certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=hai", "-addext", "subjectAltName=DNS:hai.lab.svc"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*make, *subject, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def health(*arguments: str) -> int:
    probe = [sys.executable, "-I", str(DEPLOY / "hai-health"), *arguments]
    return subprocess.run(probe, capture_output=True, check=False).returncode


@pytest.mark.e2e
async def test_the_probe_tells_who_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # as Docker sets it in containers
    async with running_server(tmp_path / "home", nodes=1) as server:
        address = server.profile.server
        assert await asyncio.to_thread(health, address) == 0
    assert await asyncio.to_thread(health, address) == 1


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
async def test_the_probe_asks_over_tls(tmp_path: Path) -> None:
    import asyncio

    cert, key = certificate(tmp_path)
    home = tmp_path / "home"
    async with running_server(home, nodes=1, tls_cert=str(cert), tls_key=str(key)) as server:
        asked = (server.profile.server, "--ca", str(cert))
        assert await asyncio.to_thread(health, *asked, "--name", "hai.lab.svc") == 0
        assert await asyncio.to_thread(health, *asked) == 1
