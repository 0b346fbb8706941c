"""SHA-256 hashes of texts and files, as hexadecimal digits or in the form of RECORD files. Pure."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import file_digest, sha256
from io import BufferedReader


def hash_text(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def hash_file(file: BufferedReader) -> str:
    return file_digest(file, "sha256").hexdigest()


def to_record_hash(hexadecimal: str) -> str:
    """Return a hash as RECORD files contain it: `sha256=`, then base64 for URLs without padding."""
    encoded = urlsafe_b64encode(bytes.fromhex(hexadecimal)).rstrip(b"=").decode()
    return f"sha256={encoded}"
