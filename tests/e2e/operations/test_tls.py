"""TLS end to end, with certificate authorities made by the tests: clients, agents and pods verify the server.

A wrong certificate is reported in one sentence, and plain text is refused.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hai.client.client import Client
from hai.client.errors import Unreachable, Untrusted
from hai.client.profile import Profile
from hai.v1.task_pb2 import TaskOutcome
from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec
from hai_backend.api.server.certificates import CertificateReload, Certificates, tls_context
from hai_backend.controllers.aio.clock import SystemClock
from hai_backend.domain.errors import Unavailable
from hai_backend.launch.local_launcher import sweep
from hai_backend.metrics.prometheus import Metrics
from hai_backend.store.connect import open_store
from tests.support.agent_pods import process_pod_cluster
from tests.support.deployment import kubernetes_settings
from tests.support.servers import RunningServer, ServerProcess, running_server

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificates"
)
HEALTH = "/grpc.health.v1.Health/Check"
HERE = "IP:127.0.0.1,DNS:localhost"
Serve = Callable[..., AbstractAsyncContextManager[RunningServer]]


class Authority:
    """A certificate authority. `file` is the certificate that its clients trust."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        self._folder = folder
        _openssl("req", "-x509", *_NEW, *_name(name), "-keyout", self._key, "-out", self.file)

    def sign(self, name: str, names: str, days: int = 90) -> dict[str, str]:
        """Return server settings with a certificate for these names. It has expired if `days` is negative."""
        key, cert, asked, more = (
            self._folder / f"{name}.{suffix}" for suffix in ("key", "crt", "csr", "ext")
        )
        more.write_text(f"subjectAltName={names}")
        _openssl("req", *_NEW, *_name(name), "-keyout", key, "-out", asked)
        signer = ["-CA", self.file, "-CAkey", self._key, "-CAcreateserial", "-days", str(days)]
        _openssl("x509", "-req", "-in", asked, "-out", cert, "-extfile", more, *signer)
        return {"tls_cert": str(cert), "tls_key": str(key), "tls_ca": str(self.file)}


_NEW = ("-newkey", "rsa:2048", "-nodes")


def _name(name: str) -> tuple[str, str]:
    return "-subj", f"/CN={name}"


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "theirs")


def hello(directory: Path) -> TaskSpec:
    program = directory / "hello.py"
    program.write_text("print('hello')")
    return TaskSpec(version=2, name="hello", spec=ProgramSpec(entrypoint=str(program)))


async def runs(server: RunningServer, ca: Path, directory: Path) -> bool:
    async with Client(replace(server.profile, ca=str(ca))) as client:
        task = await client.tasks.create(hello(directory))
        task = await client.tasks.wait(task.id, timeout=60)
        return bool(task.outcome == TaskOutcome.TASK_OUTCOME_SUCCEEDED)


async def test_a_task_runs_over_tls_and_plaintext_gets_no_answer(
    ours: Authority, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    try:
        async with running_server(home, nodes=1, **ours.sign("server", HERE)) as server:
            assert await runs(server, ours.file, tmp_path)
            async with Client(server.profile) as plain:
                with pytest.raises(Unreachable, match=r"127\.0\.0\.1") as refused:
                    await plain.server.info()
            assert "--ca" in refused.value.hint
    finally:
        sweep(home)


async def test_agents_in_pods_check_the_server_too(ours: Authority, tmp_path: Path) -> None:
    async with process_pod_cluster(tmp_path, 1) as cluster:
        table = kubernetes_settings(tmp_path, cluster.kubeconfig(tmp_path / "kubeconfig"))
        settings = {"kubernetes": table, **ours.sign("server", HERE)}
        async with running_server(tmp_path / "home", **settings) as server:
            assert await runs(server, ours.file, tmp_path)


@pytest.mark.parametrize(
    ("cert", "trusted", "said"),
    [
        pytest.param((HERE, 2), "theirs", "authority that is not trusted here", id="other authority"),
        pytest.param((HERE, -1), "ours", "has a certificate that has expired", id="expired"),
        pytest.param(("DNS:a.org", 2), "ours", "has a certificate for other names", id="other name"),
    ],
)  # fmt: skip
async def test_what_is_wrong_with_a_certificate_is_told(
    ours: Authority,
    theirs: Authority,
    tmp_path: Path,
    cert: tuple[str, int],
    trusted: str,
    said: str,
) -> None:
    ca = {"ours": ours.file, "theirs": theirs.file}[trusted]
    settings = ours.sign("server", *cert)
    async with running_server(tmp_path / "home", nodes=1, **settings) as server:
        profile = replace(server.profile, ca=str(ca))
        for again in (lambda c: c.tasks.list(), lambda c: anext(c.tasks.watch())):
            async with Client(profile) as client:
                with pytest.raises(Untrusted, match=said) as refused:
                    await again(client)
                assert refused.value.hint
        printed = await asyncio.to_thread(_list, profile, tmp_path)
    assert printed.returncode == 5
    assert said in printed.stderr
    assert "ssl" not in printed.stderr.lower()


def _list(profile: Profile, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run `hai list` with this profile."""
    config = directory / "config.toml"
    config.write_text(
        f'[profiles.x]\nserver = "{profile.server}"\ntoken = "{profile.token}"\nca = "{profile.ca}"\n'
    )
    config.chmod(0o600)
    environment = {**os.environ, "HAI_CONFIG": str(config), "HAI_PROFILE": "x"}
    command = [sys.executable, "-m", "hai_tui.cli.main", "list"]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


async def test_a_database_whose_certificate_is_not_trusted_is_not_used(
    ours: Authority, theirs: Authority, tmp_path: Path
) -> None:
    signed = ours.sign("database", HERE)
    context = tls_context(signed["tls_cert"], signed["tls_key"])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # the request for TLS
        writer.write(b"S")
        with suppress(ConnectionError, ssl.SSLError):
            await writer.start_tls(context)

    database = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = database.sockets[0].getsockname()[1]
    url = f"postgresql://127.0.0.1:{port}/hai?sslmode=verify-full&sslrootcert={theirs.file}"
    with pytest.raises(Unavailable, match="certificate verify failed"):
        await open_store(url).open()
    database.close()


async def test_an_agent_that_does_not_trust_the_server_starts_nothing_and_says_so(
    ours: Authority, theirs: Authority, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    settings = {**ours.sign("server", HERE), "tls_ca": str(theirs.file)}
    try:
        async with (
            running_server(home, nodes=1, build_within=3.0, **settings) as server,
            Client(replace(server.profile, ca=str(ours.file))) as client,
        ):
            task = await client.tasks.create(hello(tmp_path))
            (log,) = await _appears(home, "run/*/agent.log", "not trusted here")
            assert "the server has a certificate of an authority" in log
            await client.tasks.wait(task.id, until="suspended", timeout=30)
            assert await _printed(client, task.id) == []
    finally:
        sweep(home)


async def _appears(home: Path, pattern: str, words: str) -> list[str]:
    async with asyncio.timeout(20):
        while True:
            texts = [path.read_text() for path in home.glob(pattern)]  # noqa: ASYNC240
            if any(words in text for text in texts):
                return texts
            await asyncio.sleep(0.05)  # there is no event for a file of another process


async def _printed(client: Client, id: int) -> list[str]:
    return [line.text async for answer in client.logs.tail(id) for line in answer.lines]


def test_flags_name_files_as_seen_from_where_they_are_typed(
    ours: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ours.sign("server", HERE)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    server = ServerProcess(
        tmp_path / "home", "--tls-cert", Path(files["tls_cert"]).name, "--tls-key", "server.key"
    )
    try:
        profile = replace(server.start(), ca=files["tls_cert"])
        assert _list(profile, tmp_path).returncode == 0
    finally:
        server.end()


@pytest.mark.parametrize(
    ("cert", "trusted", "said"),
    [
        pytest.param((HERE, 2), "ours", "", id="good"),
        pytest.param((HERE, 2), "server.crt", "", id="the certificate itself"),
        pytest.param((HERE, 2), "theirs", "unable to get local issuer", id="other authority"),
        pytest.param((HERE, -1), "ours", "certificate has expired", id="expired"),
        pytest.param(("DNS:a.org", 2), "ours", "not valid for '127.0.0.1'", id="other name"),
    ],
)
async def test_a_server_that_its_agents_will_not_trust_says_so(
    ours: Authority,
    theirs: Authority,
    tmp_path: Path,
    cert: tuple[str, int],
    trusted: str,
    said: str,
) -> None:
    settings = ours.sign("server", *cert)
    authorities = {"ours": ours.file, "theirs": theirs.file}
    settings["tls_ca"] = str(authorities.get(trusted, tmp_path / trusted))
    with capture_logs() as logs:
        async with running_server(tmp_path / "home", nodes=1, **settings):
            pass
    (why,) = [line["why"] for line in logs if "why" in line] or [""]
    assert said in why
    assert bool(said) == bool(why)


def shown_at(address: str, ca: Path) -> bytes:
    """Return the certificate that the server presents to a new client that trusts this authority."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), timeout=20) as line,
        context.wrap_socket(line, server_hostname=host) as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


def in_file(path: str | Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(path).read_text())


async def test_a_certificate_that_was_replaced_is_shown_from_then_on(
    ours: Authority, tmp_path: Path
) -> None:
    settings = ours.sign("server", HERE)
    old = in_file(settings["tls_cert"])
    async with running_server(tmp_path / "home", nodes=0, **settings) as server:
        renewing, where = server.app.certificate_reload, server.app.context.addresses
        assert renewing is not None
        assert where is not None
        doors = [server.profile.server, f"{where.domain}{where.port}"]
        async with Client(replace(server.profile, ca=str(ours.file))) as before:
            for door in doors:
                assert await asyncio.to_thread(shown_at, door, ours.file) == old
            old_end = (await before.server.info()).certificate_expire_time
            new = in_file(ours.sign("server", HERE, days=300)["tls_cert"])
            await renewing.reload()
            new_end = (await before.server.info()).certificate_expire_time
            assert 0 < old_end.seconds - time.time() < 299 * 86_400 < new_end.seconds - time.time()
            for door in doors:
                assert await asyncio.to_thread(shown_at, door, ours.file) == new
            await before.tasks.list()  # an existing connection still works
    assert old != new


async def test_a_hangup_ends_no_server_and_lets_it_look_at_once(
    ours: Authority, tmp_path: Path
) -> None:
    files = ours.sign("server", HERE)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "hai.toml").write_text("".join(f'{k} = "{v}"\n' for k, v in files.items()))
    server = ServerProcess(tmp_path / "home")
    try:
        address = (await asyncio.to_thread(server.start)).server
        new = in_file(ours.sign("server", HERE)["tls_cert"])
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(60):
            while await asyncio.to_thread(shown_at, address, ours.file) != new:
                pass  # a handshake takes a moment
        assert "asked to look at files again" in server.log_tail()
        server.process.terminate()
        assert await asyncio.to_thread(server.process.wait, 60) == 0
    finally:
        server.end()


@pytest.mark.parametrize("broken", ["server.crt", "server.key"])
async def test_a_certificate_that_is_half_there_is_not_shown(
    ours: Authority, tmp_path: Path, broken: str
) -> None:
    settings = ours.sign("server", HERE)
    old = in_file(settings["tls_cert"])
    async with running_server(tmp_path / "home", nodes=0, **settings) as server:
        renewing, address = server.app.certificate_reload, server.profile.server
        assert renewing is not None
        fine = (tmp_path / broken).read_bytes()
        for half in (fine[: len(fine) // 2], b""):
            (tmp_path / broken).write_bytes(half)
            with capture_logs() as logs:
                await renewing.reload()
                await renewing.reload()
            (line,) = logs
            assert line["event"] == "cannot reload the certificate; the previous one stays in use"
            assert str(tmp_path / broken) in line["why"]
            assert await asyncio.to_thread(shown_at, address, ours.file) == old
            (tmp_path / broken).write_bytes(fine)
            await renewing.reload()
        new = in_file(ours.sign("server", HERE)["tls_cert"])
        await renewing.reload()
        assert await asyncio.to_thread(shown_at, address, ours.file) == new


async def test_pods_and_followers_get_an_authority_that_was_replaced(
    ours: Authority, theirs: Authority, tmp_path: Path
) -> None:
    async with process_pod_cluster(tmp_path, 1) as cluster:
        table = kubernetes_settings(tmp_path, cluster.kubeconfig(tmp_path / "kubeconfig"))
        settings = {"kubernetes": table, **ours.sign("server", HERE)}
        async with running_server(tmp_path / "home", **settings) as server:
            renewing = server.app.certificate_reload
            assert renewing is not None
            theirs.sign("server", HERE)
            shutil.copy(theirs.file, ours.file)
            await renewing.reload()
            assert await runs(server, theirs.file, tmp_path)


@pytest.mark.parametrize(
    ("days", "said"),
    [
        pytest.param(15, [], id="later"),
        pytest.param(13, ["the certificate expires soon: replace its file"], id="soon"),
        pytest.param(-1, ["the certificate has expired: replace its file"], id="over"),
    ],
)
async def test_when_a_certificate_expires_is_told_once_a_day(
    ours: Authority, tmp_path: Path, days: int, said: list[str]
) -> None:
    signed = ours.sign("server", HERE, days)
    metrics = Metrics()
    with capture_logs() as logs:
        renewing = CertificateReload(
            Certificates(*signed.values()), "127.0.0.1:1", SystemClock(), metrics
        )
        await renewing.reload()
    assert [line["event"] for line in logs if "file" in line] == said
    expires = metrics.registry.get_sample_value("hai_certificate_expiry_timestamp_seconds")
    assert expires == pytest.approx(time.time() + days * 24 * 3600, abs=600)


@pytest.mark.parametrize(
    ("wrong", "file", "said"),
    [
        pytest.param("tls_cert", "other.crt", r"is no certificate of the key in .*mismatch", id="certificate"),
        pytest.param("tls_key", "other.key", r"is no certificate of the key in .*mismatch", id="key"),
        pytest.param("tls_key", "", "set both or none", id="half a pair"),
        pytest.param("tls_key", "locked.key", r"locked\.key needs a passphrase", id="locked key"),
        pytest.param("tls_ca", "server.key", r"no certificate \(PEM\) in .*server\.key", id="no authority"),
        pytest.param("tls_ca", "ca.crt", r"cannot read .*ca\.crt: No such file", id="no file"),
    ],
)  # fmt: skip
def test_a_server_says_which_files_are_wrong(
    ours: Authority, tmp_path: Path, wrong: str, file: str, said: str
) -> None:
    ours.sign("other", HERE)
    good = ours.sign("server", HERE)
    lock = ["-aes256", "-passout", "pass:word", "-out", tmp_path / "locked.key"]
    _openssl("rsa", "-in", good["tls_key"], *lock)
    settings = {**good, wrong: str(tmp_path / file) if file else ""}
    home = tmp_path / "home"
    home.mkdir()
    (home / "hai.toml").write_text("".join(f'{k} = "{v}"\n' for k, v in settings.items()))
    server = ServerProcess(home)
    with pytest.raises(RuntimeError, match=said):
        server.start()
    assert server.process is not None
    assert server.process.wait(10) == 2
