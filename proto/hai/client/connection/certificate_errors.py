"""Explains failed TLS handshakes: gRPC passes on the messages of BoringSSL, wrapped in its layers.

Loads no grpc: agents use it as well.
"""

from __future__ import annotations

_CA = "`ca` in the profile must name the authority of the server (`hai init --ca FILE`); ask its operator for it"
_MIDDLE = "or somebody answers in its place"

_FAULTS = (
    ("certificate has expired", "has a certificate that has expired", "the server's operator must renew it"),
    ("certificate is not yet valid", "has a certificate that is not valid yet", "compare the clocks of both machines"),
    ("Hostname Verification Check failed", "has a certificate for other names",
     f"use a name that stands in it, {_MIDDLE}"),
    ("CERTIFICATE_VERIFY_FAILED", "has a certificate of an authority that is not trusted here", f"{_CA}, {_MIDDLE}"),
    ("WRONG_VERSION_NUMBER", "does not speak TLS", "remove `ca` from the profile if that is meant to be so"),
    ("Failed to create security handshaker", "cannot be checked: the file of its authority holds no certificate", _CA),
)  # fmt: skip


def explain_certificate(details: str) -> tuple[str, str]:
    """(what is wrong with the server's certificate, what to do), from the details of a status; empty: nothing is."""
    found = ((fault, hint) for message, fault, hint in _FAULTS if message in details)
    return next(found, ("", ""))
