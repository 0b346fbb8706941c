"""Built-in images, and the registries that images come from. The grammar of references stands in catalog/image.py."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hai_backend.domain.catalog.image import ImageReference, parse_image
from hai_backend.domain.errors import Invalid, Violation


@dataclass(frozen=True, slots=True)
class Image:
    """A built-in image: a name that users write, and what it stands for."""

    name: str
    reference: str
    user_groups: tuple[str, ...] = ()  # who may use it; none: everybody
    is_default: bool = False  # what `default`, and a task that names no image, means
    description: str = ""


@dataclass(frozen=True, slots=True)
class Registry:
    """How images whose reference begins with `prefix` are asked for and pulled; the longest prefix counts."""

    prefix: str  # host, host:port or host/project
    username: str = ""
    password: str = field(default="", repr=False)  # never leaves the server
    plain_http: bool = False
    pull_secret: str = ""  # name of the Kubernetes secret that nodes pull with


def full_reference(text: str, field: str = "image") -> ImageReference:
    """A reference that names its registry, with a tag or digest. Raises Invalid.

    Unlike Docker we add no registry of our own: each node would ask the one that it is set to.
    """
    try:
        found = parse_image(text)
        if not found.registry:
            raise ValueError(f"{text!r} names no registry: write registry/project/name:tag")
    except ValueError as error:
        raise Invalid((Violation(field, str(error)),), reason="BAD_REFERENCE") from error
    return found if found.tag or found.digest else replace(found, tag="latest")


def begins(image: ImageReference, prefix: str) -> bool:
    """Whether an image lies below `host`, `host/project` or `host/project/`: whole names only."""
    return f"{place(image)}/".startswith(prefix.rstrip("/") + "/")


def registry_of(image: ImageReference, known: Iterable[Registry]) -> Registry:
    """The registry that counts for an image; one without an account when none is known."""
    fitting = (registry for registry in known if begins(image, registry.prefix))
    return max(fitting, key=lambda r: len(r.prefix), default=Registry(image.registry))


def place(image: ImageReference) -> str:
    """Registry and repository, without tag and digest."""
    return f"{image.registry}/{image.repository}"
