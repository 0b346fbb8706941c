"""Settings: what is none stops the start, and what is left out has a default that fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_backend import config
from hai_backend.domain.errors import Invalid


@pytest.mark.parametrize("value", ["", "off", "warn", "require"])
def test_what_a_submission_does_about_its_image(tmp_path: Path, value: str) -> None:
    read = config.load(tmp_path, {}, {"HAI_SERVER_IMAGE_CHECK": value})
    assert read.image_check == value


def test_another_word_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="image_check: must be one of off, warn, require, not 'no'"):
        config.load(tmp_path, {"image_check": "no"}, {})


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        pytest.param({}, 60.0, id="processes start at once"),
        pytest.param({"kubernetes": {"agent_path": "/opt/hai"}}, 600.0, id="pods pull an image"),
        pytest.param(
            {"kubernetes": {"agent_path": "/opt/hai"}, "build_within": 30.0},
            30.0,
            id="as it is said",
        ),
    ],
)
def test_how_long_ranks_may_take_to_attach(
    tmp_path: Path, given: dict[str, object], seconds: float
) -> None:
    assert config.load(tmp_path, given, {}).build_seconds == seconds


def test_certificates_lie_below_the_home(tmp_path: Path) -> None:
    read = config.load(tmp_path, {"tls_cert": "a.pem", "tls_key": "/b.pem"}, {})
    assert (read.tls_cert, read.tls_key, read.tls_ca) == (str(tmp_path / "a.pem"), "/b.pem", "")
    assert read.authority == read.tls_cert
