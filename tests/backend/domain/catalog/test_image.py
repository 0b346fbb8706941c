"""Image references: their parts, and the messages for invalid ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.catalog.image import ImageReference, parse_image

DIGEST = "sha256:" + "0a" * 32
SOUND = {
    "busybox": ImageReference("busybox"),
    "busybox:1.36": ImageReference("busybox", tag="1.36"),
    "library/busybox": ImageReference("library/busybox"),
    "registry.example/a/b:1": ImageReference("a/b", "registry.example", "1"),
    "registry.example:5000/a": ImageReference("a", "registry.example:5000"),
    "localhost/a": ImageReference("a", "localhost"),
    "localhost:5000/a:b": ImageReference("a", "localhost:5000", "b"),
    f"r.example/a@{DIGEST}": ImageReference("a", "r.example", digest=DIGEST),
    f"r.example/a:1@{DIGEST}": ImageReference("a", "r.example", "1", DIGEST),
    "a/b__c-d.e---f": ImageReference("a/b__c-d.e---f"),
    "10.0.0.1:5000/a": ImageReference("a", "10.0.0.1:5000"),
}


@pytest.mark.parametrize(("text", "parts"), SOUND.items())
def test_references_have_parts(text: str, parts: ImageReference) -> None:
    assert parse_image(text) == parts
    assert str(parts) == text


WRONG = [
    ("", "at most 255 characters"),
    ("a" * 256, "at most 255 characters"),
    ("a b", "no blanks"),
    ("a\n", "no blanks"),
    ("ä/b", "beyond ASCII"),
    ("https://r.example/a", "no scheme"),
    ("bob:pw@r.example/a", "no user or password"),
    ("bob@r.example:5000/a", "no user or password"),
    ("a@sha256:0a", "a digest"),
    ("a@", "a digest"),
    ("r.example:/a", "is no registry"),
    ("-r.example/a", "is no registry"),
    (".r/a", "is no registry"),
    ("r.example/A", "in lower case"),
    ("r.example/a:", "is no tag"),
    ("r.example/a:-b", "is no tag"),
    ("a:b:c", "is no tag"),
    ("a//b", "'' is no part"),
    ("/a", "'' is no part"),
    ("a/", "'' is no part"),
    ("a/../b", "'..' is no part"),
    ("a/b___c", "is no part"),
    ("a/_b", "is no part"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_an_invalid_reference_is_rejected_with_a_reason(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_image(text)


@given(st.text("ab/.:@-_ A", max_size=20))
def test_a_valid_path_is_returned_unchanged(text: str) -> None:
    try:
        found = parse_image(text)
    except ValueError:
        return
    assert str(found) == text
    assert parse_image(str(found)) == found
