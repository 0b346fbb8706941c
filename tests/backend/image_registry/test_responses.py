"""Login challenges as real registries write them."""

from __future__ import annotations

import pytest

from hai_backend.image_registry.responses import Challenge, parse_challenge

HARBOR = (
    'Bearer realm="https://r.example/service/token",service="harbor-registry",'
    'scope="repository:lab/a:pull"'
)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param(
            HARBOR,
            Challenge(
                True, "https://r.example/service/token", "harbor-registry", "repository:lab/a:pull"
            ),
            id="Harbor",
        ),
        pytest.param(
            'bearer realm="https://t.example/token", service="a, b"',
            Challenge(True, "https://t.example/token", "a, b"),
            id="small letters, a comma inside",
        ),
        pytest.param('Basic realm="basic-realm"', Challenge(False, "basic-realm"), id="htpasswd"),
        pytest.param("Basic", Challenge(False), id="Basic alone"),
        pytest.param("Bearer", None, id="a token, but from where?"),
        pytest.param("Negotiate", None, id="another kind"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_challenges(header: str, expected: Challenge | None) -> None:
    assert parse_challenge(header) == expected
