"""Container images, in which programs run, and their registries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hai_tui.i18n import text
from hai_tui.resources.resource_spec import (
    YES_NO,
    Answers,
    Field,
    ResourceSpec,
    Verb,
    delete_verb,
    prefilled_fields,
)
from hai_tui.views.images import IMAGES, REGISTRIES

if TYPE_CHECKING:
    from hai.v1.image_pb2 import Image, ImageCheck

_IMAGE_FIELDS = ("name", "reference", "description")


def _image(item: Any, answers: Answers) -> Image:
    from hai.v1.image_pb2 import Image

    return Image(
        name=answers.text("name"),
        reference=answers.text("reference"),
        user_groups=answers.list_of("user_groups"),
        is_default=answers.flag("is_default"),
        description=answers.text("description"),
    )


def _check_text(check: ImageCheck) -> str:
    return text(
        "image.checked", reference=check.reference, digest=check.digest, pinned=check.pinned
    )


def _registry(item: Any, answers: Answers) -> tuple[Any, str | None]:
    from hai.v1.image_pb2 import Registry

    registry = Registry(
        prefix=answers.text("prefix"),
        username=answers.text("username"),
        plain_http=answers.flag("plain_http"),
        pull_secret=answers.text("pull_secret"),
    )
    return registry, answers.text("password") or None


RESOURCES = (
    ResourceSpec(
        "images",
        IMAGES,
        lambda client: client.images.list(),
        (
            Verb(
                "a",
                "new",
                lambda client, image: client.images.set(image),
                _image,
                (
                    Field("name"),
                    Field("reference"),
                    Field("user_groups"),
                    Field("is_default", lambda i: "no", YES_NO),
                    Field("description"),
                ),
                new=True,
                right="manage_images",
            ),
            Verb(
                "e",
                "edit",
                lambda client, image: client.images.set(image),
                _image,
                (
                    *prefilled_fields(_IMAGE_FIELDS),
                    Field("user_groups", lambda i: ",".join(i.user_groups)),
                    Field("is_default", lambda i: "yes" if i.is_default else "no", YES_NO),
                ),
                right="manage_images",
            ),
            Verb(
                "K",
                "check",
                lambda client, i: client.images.check(i.name),
                writes=False,
                result_text=_check_text,
            ),
            delete_verb(lambda client, i: client.images.delete(i.name), right="manage_images"),
        ),
    ),
    ResourceSpec(
        "registries",
        REGISTRIES,
        lambda client: client.images.registries(),
        (
            Verb(
                "a",
                "new",
                lambda client, request: client.images.set_registry(*request),
                _registry,
                (
                    Field("prefix"),
                    Field("username"),
                    Field("password"),
                    Field("plain_http", lambda r: "no", YES_NO),
                    Field("pull_secret"),
                ),
                new=True,
                right="manage_images",
            ),
            delete_verb(
                lambda client, r: client.images.delete_registry(r.prefix), right="manage_images"
            ),
        ),
    ),
)
