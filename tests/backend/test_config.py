"""Settings of images and ports: what is no setting stops the start."""

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
