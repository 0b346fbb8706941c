"""References of container images, by the grammar of the OCI distribution specification.

A reference goes into a pod as it was written, so nothing but this grammar may pass: no scheme, no user, no password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = re.compile(rf"{_HOST}(?:\.{_HOST})*(?::[1-9][0-9]{{0,4}})?")
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_CHARS = 255


@dataclass(frozen=True, slots=True)
class ImageReference:
    """[registry/]repository[:tag][@digest]; what is not given is empty."""

    repository: str
    registry: str = ""
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        registry = self.registry and f"{self.registry}/"
        tag = self.tag and f":{self.tag}"
        return f"{registry}{self.repository}{tag}{self.digest and f'@{self.digest}'}"


def parse_image(text: str) -> ImageReference:
    """The parts of a reference. Raises ValueError with a sentence that says what is wrong."""
    _check_form(text)
    name, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise ValueError("after @ there must be a digest, sha256: and 64 hexadecimal digits")
    first, slash, rest = name.partition("/")
    if not (slash and (set(".:") & set(first) or first == "localhost")):
        first, rest = "", name
    if first and not _REGISTRY.fullmatch(first):
        raise ValueError(f"{first!r} is no registry: write its host, and a port after a colon")
    repository, colon, tag = rest.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise ValueError(f"{tag!r} is no tag: at most 128 letters, digits, `_`, `.` and `-`")
    _check_repository(repository)
    return ImageReference(repository, first, tag, digest)


def _check_form(text: str) -> None:
    if not text or len(text) > _CHARS:
        raise ValueError(f"an image has 1 to at most {_CHARS} characters, not {len(text)}")
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise ValueError("an image has no blanks, control characters or letters beyond ASCII")
    if "://" in text:
        raise ValueError("an image has no scheme: write registry/name:tag, without https://")
    before, at, _ = text.partition("@")
    if at and "/" in text[len(before) :]:
        raise ValueError("an image names no user or password: an operator sets up pull secrets")


def _check_repository(repository: str) -> None:
    for part in repository.split("/"):
        if part != part.lower():
            raise ValueError(f"{part!r} must be in lower case")
        if not _PART.fullmatch(part):
            wanted = "lower-case letters and digits, with `.`, `_` or `-` between them"
            raise ValueError(f"{part!r} is no part of an image's name: {wanted}")
