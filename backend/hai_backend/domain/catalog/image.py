"""Container images: references, built-in images, and the registries that images come from.

References follow the grammar of the OCI distribution specification. They are written into pods unchanged, so a scheme,
a user and a password are not accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hai_backend.domain.errors import Invalid, Violation

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = re.compile(rf"{_HOST}(?:\.{_HOST})*(?::[1-9][0-9]{{0,4}})?")
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_CHARS = 255


@dataclass(frozen=True, slots=True)
class ImageReference:
    """[registry/]repository[:tag][@digest]; missing parts are empty."""

    repository: str
    registry: str = ""
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        registry = self.registry and f"{self.registry}/"
        tag = self.tag and f":{self.tag}"
        return f"{registry}{self.repository}{tag}{self.digest and f'@{self.digest}'}"


def parse_image(text: str) -> ImageReference:
    """Parse a reference. Raises ValueError with a message for users."""
    _check_form(text)
    name, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise ValueError("after @ there must be a digest, sha256: and 64 hexadecimal digits")
    first, slash, remainder = name.partition("/")
    if not (slash and (set(".:") & set(first) or first == "localhost")):
        first, remainder = "", name
    if first and not _REGISTRY.fullmatch(first):
        raise ValueError(f"{first!r} is no registry: write its host, and a port after a colon")
    repository, colon, tag = remainder.partition(":")
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
            rule = "lower-case letters and digits, with `.`, `_` or `-` between them"
            raise ValueError(f"{part!r} is no part of an image's name: {rule}")


@dataclass(frozen=True, slots=True)
class Image:
    """A built-in image: a name for users, and its reference."""

    name: str
    reference: str
    user_groups: tuple[str, ...] = ()  # that may use the image; empty for all users
    is_default: bool = False  # used for `default`, and for tasks that name no image
    description: str = ""


@dataclass(frozen=True, slots=True)
class Registry:
    """How to access images whose reference begins with `prefix`. The longest matching prefix counts."""

    prefix: str  # host, host:port or host/project
    username: str = ""
    password: str = field(default="", repr=False)  # never leaves the server
    plain_http: bool = False
    pull_secret: str = ""  # name of the Kubernetes secret with which nodes pull images


def full_reference(text: str, field: str = "image") -> ImageReference:
    """Parse a reference that names its registry, and add the tag `latest` if it has no tag or digest. Raises Invalid.

    Unlike Docker, this adds no default registry, because nodes may be configured for different registries.
    """
    try:
        found = parse_image(text)
        if not found.registry:
            raise ValueError(f"{text!r} names no registry: write registry/project/name:tag")
    except ValueError as error:
        raise Invalid((Violation(field, str(error)),), reason="BAD_REFERENCE") from error
    return found if found.tag or found.digest else replace(found, tag="latest")


def has_prefix(image: ImageReference, prefix: str) -> bool:
    """Return whether an image is below `host`, `host/project` or `host/project/`. Whole path parts are compared."""
    return f"{repository_path(image)}/".startswith(prefix.rstrip("/") + "/")


def registry_of(image: ImageReference, registries: Iterable[Registry]) -> Registry:
    """Return the registry of an image, or one without credentials if none is configured."""
    matching = (registry for registry in registries if has_prefix(image, registry.prefix))
    return max(matching, key=lambda r: len(r.prefix), default=Registry(image.registry))


def repository_path(image: ImageReference) -> str:
    """Return registry and repository, without tag and digest."""
    return f"{image.registry}/{image.repository}"
