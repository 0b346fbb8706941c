"""gRPC calls over one HTTP/2 connection of our own, for what is asked and said on almost every push.

Importing grpc takes longer than all the rest of a push with little to do. This speaks just enough of both protocols:
whole messages one way, whole messages back, within the windows that the server gives. Whatever else comes (an error,
a refusal, an odd frame) is no answer, and then the caller does everything again the usual way, which tells errors.
"""

from __future__ import annotations

import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK, _PADDED = 1, 4, 1, 8
_FRAME_BYTES = 1 << 14  # every peer takes so much
_FIRST_WINDOW = (1 << 16) - 1
_INITIAL_WINDOW = 4  # a setting: of each stream
_POST, _HTTP, _HTTPS = b"\x83", b"\x86", b"\x87"  # rows of the table that HPACK begins with
_PATH, _AUTHORITY, _NEVER = b"\x04", b"\x01", b"\x10"  # literals that nobody remembers


class Broken(OSError):
    """The server said something that is no answer."""


class Line:
    """A connection, with one call at a time. Raises OSError. Close it."""

    def __init__(self, server: str, token: str, ca: str | None, seconds: float) -> None:
        """`ca`: None: plaintext; empty: the system's authorities; else a file with them."""
        authority = "localhost" if server.startswith("unix:") else server
        self._begin = _POST + (_HTTP if ca is None else _HTTPS) + _AUTHORITY + _text(authority)
        self._headers = _headers(token)
        self._socket = _connected(server, ca, seconds)
        self._stream = -1
        self._window = self._first = _FIRST_WINDOW  # of the connection; of each stream at its begin
        self._room = 0  # of this stream
        self._data = bytearray()
        self._ended = True
        self._in = self._socket.makefile("rb")
        self._out = bytearray(_PREFACE + _frame(_SETTINGS, 0, 0, b""))

    def wait(self, seconds: float) -> None:
        """So long may an answer take from now on."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Hang up."""
        self._in.close()
        self._socket.close()

    def call(self, method: str, messages: Iterable[bytes]) -> None:
        """Send all that is to be said; `answers` tells what came of it."""
        self._stream += 2
        self._room, self._ended = self._first, False
        self._data.clear()
        block = self._begin + _PATH + _text(method) + self._headers
        self._out += _frame(_HEADERS, _END_HEADERS, self._stream, block)
        for message in messages:
            self._send(struct.pack(">BI", 0, len(message)) + message)
        self._out += _frame(_DATA, _END_STREAM, self._stream, b"")
        self._flush()

    def answers(self) -> list[bytes]:
        """What the server said, message by message; nothing if it refused."""
        while not self._ended:
            self._take()
        return list(_messages(self._data))

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            room = min(self._window, self._room, _FRAME_BYTES)
            if room <= 0:
                self._flush()
                self._take()
                if self._ended:
                    raise Broken("it ended before all was said")
                continue
            self._out += _frame(_DATA, 0, self._stream, bytes(rest[:room]))
            rest, self._window, self._room = rest[room:], self._window - room, self._room - room

    def _flush(self) -> None:
        out, self._out = self._out, bytearray()
        self._socket.sendall(out)

    def _take(self) -> None:
        """One frame."""
        head = self._in.read(9)
        if len(head) < 9:
            raise Broken("it hung up")
        size, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        stream, payload = int.from_bytes(head[5:]) & 0x7FFFFFFF, self._in.read(size)
        if kind == _GO_AWAY or (kind == _DATA and flags & _PADDED):
            raise Broken("it goes away")
        if kind == _SETTINGS and not flags & _ACK:
            self._settle(payload)
        elif kind == _PING and not flags & _ACK:
            self._socket.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW:
            self._widen(stream, int.from_bytes(payload) & 0x7FFFFFFF)
        elif stream == self._stream and kind in (_DATA, _HEADERS, _RESET):
            self._data += payload if kind == _DATA else b""
            self._ended = bool(flags & _END_STREAM) or kind == _RESET

    def _settle(self, payload: bytes) -> None:
        for place in range(0, len(payload) - 5, 6):
            name, value = struct.unpack_from(">HI", payload, place)
            if name == _INITIAL_WINDOW:
                self._room, self._first = self._room + value - self._first, value
        self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))

    def _widen(self, stream: int, more: int) -> None:
        if stream == 0:
            self._window += more
        elif stream == self._stream:
            self._room += more


def _messages(data: bytearray) -> Iterable[bytes]:
    """Of a body of plain messages."""
    place = 0
    while place < len(data):
        end = place + 5 + int.from_bytes(data[place + 1 : place + 5])
        if len(data) < place + 5 or data[place] or end > len(data):
            raise Broken("no plain message")
        yield bytes(data[place + 5 : end])
        place = end


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
    # as gRPC: `ca` may be the server's certificate itself, or what stands between it and its authority
    context.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain, server_hostname=host)  # which closes it where that fails


def _headers(token: str) -> bytes:
    """In HPACK without compression: names and values as they are."""
    own = {"te": "trailers", "content-type": "application/grpc"}
    own |= {"authorization": f"Bearer {token}"} if token else {}
    return b"".join(_NEVER + _text(name) + _text(value) for name, value in own.items())


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
