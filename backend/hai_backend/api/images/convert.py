"""Converts images and registries to messages and back. The password of a registry is never returned."""

from __future__ import annotations

import re

from hai.v1 import image_pb2 as pb
from hai_backend.api.request import limits
from hai_backend.api.request.field_checks import NAME, FieldViolations
from hai_backend.api.users.convert import NAME_RULE
from hai_backend.domain.catalog.image import Image, Registry, full_reference
from hai_backend.domain.errors import Invalid

_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)*")
_SECRET = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?")
_PREFIX_RULE = "a host, host:port or host/project, in lower case"


def image_to_proto(image: Image) -> pb.Image:
    return pb.Image(
        name=image.name,
        reference=image.reference,
        user_groups=image.user_groups,
        is_default=image.is_default,
        description=image.description,
    )


def image_from_proto(message: pb.Image) -> Image:
    """Return a validated image. Raises Invalid with every violation."""
    violations = FieldViolations()
    violations.check_pattern("image.name", message.name, NAME, NAME_RULE)
    try:
        full_reference(message.reference, "image.reference")
    except Invalid as error:
        violations.add("image.reference", error.violations[0].message)
    for i, group in enumerate(
        violations.check_count("image.user_groups", message.user_groups, limits.USER_GROUPS)
    ):
        violations.check_pattern(f"image.user_groups[{i}]", group, NAME, NAME_RULE)
    violations.check_line("image.description", message.description, limits.DESCRIPTION_CHARS)
    violations.raise_if_any()
    groups = tuple(dict.fromkeys(message.user_groups))
    return Image(message.name, message.reference, groups, message.is_default, message.description)


def registry_to_proto(registry: Registry) -> pb.Registry:
    """Convert a registry, without its password."""
    return pb.Registry(
        prefix=registry.prefix,
        username=registry.username,
        plain_http=registry.plain_http,
        pull_secret=registry.pull_secret,
        has_password=bool(registry.password),
    )


def registry_from_proto(message: pb.Registry, password: str) -> Registry:
    """Return a validated registry. Raises Invalid with every violation."""
    violations = FieldViolations()
    prefix = violations.check_line("registry.prefix", message.prefix, limits.IMAGE_CHARS)
    violations.check_pattern("registry.prefix", prefix, _PREFIX, _PREFIX_RULE)
    violations.check_line("registry.username", message.username, limits.DESCRIPTION_CHARS)
    if ":" in message.username:
        violations.add("registry.username", "may not contain a colon")
    violations.check_text("password", password, limits.COMMAND_CHARS)
    if password and not message.username:
        violations.add("registry.username", "is required with a password")
    violations.check_pattern(
        "registry.pull_secret", message.pull_secret, _SECRET, "the name of a Kubernetes secret"
    )
    violations.raise_if_any()
    return Registry(
        message.prefix, message.username, password, message.plain_http, message.pull_secret
    )
