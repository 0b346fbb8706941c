"""One unary gRPC call over one HTTP/2 connection of our own, for a question that is asked on every push.

Importing grpc takes longer than all the rest of a push with nothing to do. This speaks just enough to ask: a request
of less than one frame, and the message of the answer. Whatever else comes (an error, a refusal, an odd frame) is no
answer, and then the caller asks again the usual way, which tells errors in full.
"""

from __future__ import annotations

import socket
import struct

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _GO_AWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS, _ACK, _PADDED = 1, 4, 1, 8
_STREAM = 1
_MOST_BYTES = 1 << 14  # of a request, so that it is one frame and within the first window
_POST, _HTTP, _HTTPS = b"\x83", b"\x86", b"\x87"  # rows of the table that HPACK begins with
_PATH, _AUTHORITY = b"\x04", b"\x01"  # a row's name with a value of its own, not to be remembered


class Call:
    """Sent at once; answered when somebody asks, so that other work can be done meanwhile. Close it."""

    def __init__(
        self, server: str, method: str, request: bytes, token: str, ca: str | None, seconds: float
    ) -> None:
        """`ca`: None: plaintext; empty: the system's authorities; else a file with them. Raises OSError."""
        block = _headers(server, method, token, _HTTP if ca is None else _HTTPS)
        message = struct.pack(">BI", 0, len(request)) + request
        if max(len(block), len(message)) > _MOST_BYTES:
            raise OSError("too large for one frame")
        self._socket = _connected(server, ca, seconds)
        try:
            self._socket.sendall(
                _PREFACE
                + _frame(_SETTINGS, 0, 0, b"")
                + _frame(_HEADERS, _END_HEADERS, _STREAM, block)
                + _frame(_DATA, _END_STREAM, _STREAM, message)
            )
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def answer(self) -> bytes | None:
        """The message; None: there is none. Raises OSError."""
        data = b""
        with self._socket.makefile("rb") as stream:
            while len(head := stream.read(9)) == 9:
                size, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
                number, payload = int.from_bytes(head[5:]) & 0x7FFFFFFF, stream.read(size)
                if kind == _SETTINGS and not flags & _ACK:
                    self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
                if kind in (_RESET, _GO_AWAY) or (kind == _DATA and flags & _PADDED):
                    return None
                if kind == _DATA and number == _STREAM:
                    data += payload
                if kind in (_DATA, _HEADERS) and number == _STREAM and flags & _END_STREAM:
                    return _message(data)
        return None


def _message(data: bytes) -> bytes | None:
    """Of a body that is one plain message."""
    if len(data) < 5 or data[0] or int.from_bytes(data[1:5]) != len(data) - 5:
        return None
    return data[5:]


def _connected(server: str, ca: str | None, seconds: float) -> socket.socket:
    if server.startswith("unix:"):
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(seconds)
        plain.connect(server.removeprefix("unix:"))
        return plain
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    plain = socket.create_connection((host, int(port)), seconds)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if ca is None:
        return plain
    import ssl

    context = ssl.create_default_context(cafile=ca or None)
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain, server_hostname=host)  # which closes it where that fails


def _headers(server: str, method: str, token: str, scheme: bytes) -> bytes:
    """A block of HPACK without compression: rows by number, and names and values as they are."""
    own = {"te": "trailers", "content-type": "application/grpc"}
    if token:
        own["authorization"] = f"Bearer {token}"
    authority = "localhost" if server.startswith("unix:") else server
    named = _PATH + _text(method) + _AUTHORITY + _text(authority)
    return (
        _POST
        + scheme
        + named
        + b"".join(b"\x10" + _text(name) + _text(value) for name, value in own.items())
    )


def _text(value: str) -> bytes:
    data = value.encode("ascii")
    size, more = len(data), bytearray()
    if size < 127:
        return bytes([size]) + data
    size -= 127
    while size > 127:
        more.append(size & 127 | 128)
        size >>= 7
    return b"\x7f" + bytes([*more, size]) + data


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload
