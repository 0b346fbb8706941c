"""The TLS certificate of the server: reads it, checks it, and reads it again when its files are replaced.

Certificates are replaced every few weeks while the server runs. While the files do not form a valid pair, the server
logs a warning and presents the certificate that it read before.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import grpc
import structlog

from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.errors import Invalid, Violation
from hai_backend.metrics.prometheus import Metrics

log = structlog.get_logger(__name__)

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME; `ssl` has no name for it
_CHECK_SECONDS = 10.0  # Polled: network storage sends no file notifications
_DAY = 24 * 3600.0
_WARN_BEFORE_SECONDS = 14 * _DAY


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and the key that belongs to it, in PEM, and when the certificate expires."""

    cert: bytes
    key: bytes
    context: ssl.SSLContext
    expires: float


class Certificates:
    """The certificate and key in these files, and the authority with which others verify them. Raises Invalid."""

    def __init__(self, cert: str, key: str, authority: str) -> None:
        self.cert, self.key, self.authority = cert, key, authority
        self.current, self.trusted = self._read()

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next TLS connection."""
        return self.current.context

    def reload(self) -> Sequence[str]:
        """Read the files again and return those that changed. Raises Invalid and then keeps the old content."""
        current, trusted = self._read()
        before = (
            (self.cert, self.current.cert),
            (self.key, self.current.key),
            (self.authority, self.trusted),
        )
        after = current.cert, current.key, trusted
        self.current, self.trusted = current, trusted
        return [file for (file, old), new in zip(before, after, strict=True) if old != new]

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials that follow a reload: gRPC calls `fetch` for every connection."""
        in_use = self.current

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal in_use
            previous, in_use = in_use, self.current
            return None if in_use is previous else _configuration(in_use)  # None means unchanged

        return grpc.dynamic_ssl_server_credentials(_configuration(in_use), fetch)  # type: ignore[arg-type]

    def _read(self) -> tuple[KeyPair, bytes]:
        cert, key = _read_file(self.cert), _read_file(self.key)
        context = tls_context(self.cert, self.key)
        if (cert, key) != (_read_file(self.cert), _read_file(self.key)):
            raise _invalid("tls", f"{self.cert} or {self.key} was written while it was read")
        check_authority(self.authority)
        pair = KeyPair(cert, key, context, _expiry(self.cert, context))
        return pair, _read_file(self.authority)


class CertificateReload:
    """Reloads certificates in a loop, and warns when one is untrusted or expires soon.

    `address` is where other servers and agents reach this server. `authority_changed` is set when the authority file
    has new content.
    """

    def __init__(
        self, certificates: Certificates, address: str, clock: Clock, metrics: Metrics
    ) -> None:
        self.authority_changed = asyncio.Event()
        self._certificates = certificates
        self._address = address
        self._clock = clock
        self._metrics = metrics
        self._reload_requested = asyncio.Event()
        self._logged_error = ""
        self._warned_at = 0.0
        self._warn_if_untrusted()

    async def run(self) -> NoReturn:
        """Check for new files forever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._reload_requested.wait()
            self._reload_requested.clear()
            await self.reload()

    def request_reload(self) -> None:
        """Check for new files now instead of at the next interval."""
        self._reload_requested.set()

    async def reload(self) -> None:
        """Check for new files once, in a thread because storage may be slow."""
        try:
            if changed := await asyncio.to_thread(self._certificates.reload):
                self._apply(changed)
            self._logged_error = ""
        except (Invalid, OSError) as error:  # ssl.SSLError is an OSError
            self._log_error(str(error))
        self._warn_before_expiry()

    def _log_error(self, why: str) -> None:
        if why != self._logged_error:
            self._logged_error = why
            log.warning("cannot reload the certificate; the previous one stays in use", why=why)

    def _apply(self, changed: Sequence[str]) -> None:
        log.info("certificate reloaded", files=changed, expires=self._expires())
        self._warned_at = 0.0
        self._warn_if_untrusted()
        if self._certificates.authority in changed:
            self.authority_changed.set()

    def _warn_if_untrusted(self) -> None:
        host = self._address.rpartition(":")[0].strip("[]")
        if why := find_distrust(self._certificates, host):
            message = "agents and other servers will not trust the certificate of this server"
            log.warning(message, address=self._address, why=why)
        self._warn_before_expiry()

    def _warn_before_expiry(self) -> None:
        """Warn once a day, from two weeks before."""
        expires, now = self._certificates.current.expires, self._clock.now()
        self._metrics.certificate(expires)
        if expires - now < _WARN_BEFORE_SECONDS and now - self._warned_at >= _DAY:
            self._warned_at = now
            what = "expires soon" if now < expires else "has expired"
            file = self._certificates.cert
            log.warning(f"the certificate {what}: replace its file", file=file, at=self._expires())

    def _expires(self) -> str:
        return datetime.fromtimestamp(self._certificates.current.expires, UTC).isoformat()


def tls_context(cert: str, key: str) -> ssl.SSLContext:
    """Load a certificate file and its key file. Raises Invalid if they are not PEM or do not belong together."""
    for path in (cert, key):
        _read_file(path)

    def refuse_passphrase() -> str:  # without a callback OpenSSL prompts on the terminal
        raise _invalid("tls", f"{key} needs a passphrase; use a key without one")

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key, refuse_passphrase)
    except ssl.SSLError as error:
        why = (error.reason or "no PEM").lower().replace("_", " ")
        raise _invalid("tls", f"{cert} is no certificate of the key in {key}: {why}") from error
    return context


def check_authority(file: str) -> None:
    """Raise Invalid if the file holds no CA certificate."""
    _read_file(file)
    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        raise _invalid("tls_ca", f"there is no certificate (PEM) in {file}") from error


def find_distrust(certificates: Certificates, host: str) -> str:
    """Return why a client that connects to `host` rejects the certificate. Empty if it accepts the certificate."""
    client = ssl.create_default_context(cafile=certificates.authority)
    client.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST | ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC
    try:
        _handshake(client, certificates.context, host)
    except ssl.SSLError as error:
        return getattr(error, "verify_message", str(error))
    return ""


def _expiry(cert: str, server: ssl.SSLContext) -> float:
    """Return when a certificate expires. `ssl` gives this only for the verified certificate of a peer."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(cert)
    client.verify_flags = ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    try:
        peer_cert = _handshake(client, server, "").getpeercert()
    except ssl.SSLError as error:
        raise _invalid("tls_cert", f"{cert} fails in a TLS handshake: {error}") from error
    assert peer_cert is not None
    return float(ssl.cert_time_to_seconds(str(peer_cert["notAfter"])))


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Run a TLS handshake in memory and return its client side. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server, server_hostname=host or None)
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (client_side, server_side, client_side):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client_side


def _configuration(pair: KeyPair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.cert)])


def _read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _invalid("tls", f"cannot read {path}: {error.strerror}") from error


def _invalid(field: str, message: str) -> Invalid:
    return Invalid((Violation(field, message),), reason="BAD_SETTINGS")
