"""The certificate that callers are shown: read again and again, because others replace its files every few weeks.

They do so while we read: what is no whole pair is told, and the certificate of before is shown until it is one.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from hai_backend.domain.errors import Invalid, Violation

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, for which `ssl` has no name


@dataclass(frozen=True, slots=True)
class Shown:
    """A certificate and its key, which belong together."""

    cert: bytes
    key: bytes
    context: ssl.SSLContext
    expires: float


class Certificates:
    """Of these files; `authority` is what the others check such certificates with. Raises Invalid."""

    def __init__(self, cert: str, key: str, authority: str) -> None:
        self.cert, self.key, self.authority = cert, key, authority
        self.shown, self.trusted = self._read()

    @property
    def context(self) -> ssl.SSLContext:
        """For one more connection of a browser."""
        return self.shown.context

    def look(self) -> Sequence[str]:
        """The files that are others than before; from now on they count. Raises Invalid, and nothing has changed."""
        shown, trusted = self._read()
        before = (
            (self.cert, self.shown.cert),
            (self.key, self.shown.key),
            (self.authority, self.trusted),
        )
        now = shown.cert, shown.key, trusted
        self.shown, self.trusted = shown, trusted
        return [file for (file, old), new in zip(before, now, strict=True) if old != new]

    def credentials(self) -> grpc.ServerCredentials:
        """gRPC asks anew with each connection."""
        told = self.shown

        def ask() -> grpc.ServerCertificateConfiguration | None:
            nonlocal told
            before, told = told, self.shown
            return None if told is before else _configuration(told)  # None: as before

        return grpc.dynamic_ssl_server_credentials(_configuration(told), ask)  # type: ignore[arg-type]

    def _read(self) -> tuple[Shown, bytes]:
        cert, key = _bytes(self.cert), _bytes(self.key)
        context = tls_context(self.cert, self.key)
        if (cert, key) != (_bytes(self.cert), _bytes(self.key)):
            raise _invalid("tls", f"{self.cert} or {self.key} was written while it was read")
        check_authority(self.authority)
        shown = Shown(cert, key, context, _expires(self.cert, context))
        return shown, _bytes(self.authority)


def _configuration(shown: Shown) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(shown.key, shown.cert)])


def tls_context(cert: str, key: str) -> ssl.SSLContext:
    """The certificate and its key, in files. Raises Invalid when they are none, or do not belong together."""
    for path in (cert, key):
        _bytes(path)

    def passphrase() -> str:  # else OpenSSL asks for it on the terminal
        raise _invalid("tls", f"{key} needs a passphrase, which nobody would type at a start")

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key, passphrase)
    except ssl.SSLError as error:
        why = (error.reason or "no PEM").lower().replace("_", " ")
        raise _invalid("tls", f"{cert} is no certificate of the key in {key}: {why}") from error
    return context


def check_authority(file: str) -> None:
    """Raises Invalid when no server could be checked with it."""
    _bytes(file)
    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        raise _invalid("tls_ca", f"there is no certificate (PEM) in {file}") from error


def distrust(certificates: Certificates, host: str) -> str:
    """Why who calls that host will not believe the certificate; empty: it is believed."""
    trusting = ssl.create_default_context(cafile=certificates.authority)
    trusting.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST | ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC
    try:
        _met(trusting, certificates.context, host)
    except ssl.SSLError as error:
        return getattr(error, "verify_message", str(error))
    return ""


def _expires(cert: str, shown: ssl.SSLContext) -> float:
    """`ssl` tells it only of a certificate that was shown and believed."""
    believing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    believing.check_hostname = False
    believing.load_verify_locations(cert)
    believing.verify_flags = ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    try:
        seen = _met(believing, shown, "").getpeercert()
    except ssl.SSLError as error:
        raise _invalid("tls_cert", f"{cert} cannot be shown to anybody: {error}") from error
    assert seen is not None
    return float(ssl.cert_time_to_seconds(str(seen["notAfter"])))


def _met(trusting: ssl.SSLContext, shown: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """The caller's side of a handshake. Raises SSLError."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = trusting.wrap_bio(back, there, server_hostname=host or None)
    for side in (caller, shown.wrap_bio(there, back, server_side=True), caller):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return caller


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _invalid("tls", f"cannot read {path}: {error.strerror}") from error


def _invalid(field: str, message: str) -> Invalid:
    return Invalid((Violation(field, message),), reason="BAD_SETTINGS")
