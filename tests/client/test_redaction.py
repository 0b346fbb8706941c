"""Tests that secrets in URLs are redacted, and other texts stay unchanged."""

from __future__ import annotations

import re
from string import ascii_letters, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai.redaction import is_redacted, redact, redact_values, without_credentials

SECRETS = st.text(ascii_letters + digits + "-._~!$&'()*+,;=%:@", min_size=6, max_size=30).map(
    lambda text: f"s3cr3t{text}"
)
SCHEMES = st.sampled_from(["http", "https", "git+https", "HTTPS", "ftp", "ssh", "postgresql"])
HOSTS = st.sampled_from(["host", "10.0.0.1:8080", "[::1]:80", "git.example.org"])
PATHS = st.sampled_from(["", "/", "/a/b.git", "/x@y/z", "/simple/?page=2", "/a.whl#sha256=00ff"])
AROUND = st.sampled_from(["{}", "fatal: '{}': 401", "see <{}>", "{}\nnext", 'x "{}", y', "a@b {}"])


@pytest.mark.parametrize(
    ("text", "shown", "recorded"),
    [
        ("http://ada:pw@h/x", "http://****@h/x", "http://h/x"),
        ("https://ghp_abc@github.com/x", "https://****@github.com/x", "https://github.com/x"),
        ("https://TOKEN:@h/", "https://****@h/", "https://h/"),
        ("https://TOKEN:x-oauth-basic@h/", "https://****@h/", "https://h/"),
        ("git+https://u:p@h/x.git@v1", "git+https://****@h/x.git@v1", "git+https://h/x.git@v1"),
        ("ssh://git:pw@h/x", "ssh://****@h/x", "ssh://git@h/x"),
        ("http://u:p@ss@h/", "http://****@h/", "http://h/"),
        ("http://u:p/ss@h/", "http://****@h/", "http://h/"),
        ("http://u:p#ss?@h/", "http://****@h/", "http://h/"),
        ("http://a,http://u:p@h", "http://a,http://****@h", "http://a,http://h"),
        ("http://h/x?token=1", "http://h/x?token=****", "http://h/x"),
        ("http://h/?a=1&access_token=2&b=3", "http://h/?a=1&access_token=****&b=3", "http://h/?a=1&b=3"),
        (
            "http://h/?X-Amz-Signature=1&X-Amz-Credential=2",
            "http://h/?X-Amz-Signature=****&X-Amz-Credential=****",
            "http://h/",
        ),
        ("http://u:p@h/?sig=1#sha256=2", "http://****@h/?sig=****#sha256=2", "http://h/#sha256=2"),
    ],
)  # fmt: skip
def test_secrets_are_masked_in_texts_and_omitted_from_records(
    text: str, shown: str, recorded: str
) -> None:
    assert (redact(text), without_credentials(text)) == (shown, recorded)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a sentence with user:password@host in it",
        "ssh://git@github.com/a/b.git",
        "git@github.com:a/b.git",
        "postgresql://hai@localhost/hai",
        "https://${USER}:${PASSWORD}@host/x",
        "https://worker:${PASSWORD}@host/x?token=${TOKEN}",
        "http://host:8080/@scope/package",
        "http://host:${PORT}/@scope",
        "http://[::1]:80/x",
        "see http://a and mail b@c",
        '{"url":"http://host","mail":"a@b"}',
        "http://h/?page=2&monkey=3",
        "http://h/?token=",
        "what?token, asked she",
    ],
)
def test_a_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert redact(text) == text
    assert without_credentials(text) == text


@given(SECRETS, SCHEMES, HOSTS, PATHS, AROUND)
def test_no_password_survives(secret: str, scheme: str, host: str, path: str, around: str) -> None:
    text = around.format(f"{scheme}://worker:{secret}@{host}{path}")
    for cleaned in (redact(text), without_credentials(text)):
        assert "s3cr3t" not in cleaned
        assert f"{host}{path}" in cleaned
        assert redact(cleaned) == cleaned


@given(
    SECRETS.map(lambda text: re.sub(r"[&']", "", text)),
    st.sampled_from(["token", "access_token", "X-Amz-Signature", "sig", "api_key", "Password"]),
    AROUND,
)  # fmt: skip
def test_no_secret_parameter_survives(secret: str, name: str, around: str) -> None:
    text = around.format(f"https://host/a?page=2&{name}={secret}&last=1")
    for cleaned in (redact(text), without_credentials(text)):
        assert "s3cr3t" not in cleaned
        assert "page=2" in cleaned
        assert "last=1" in cleaned


@given(st.text(ascii_letters + digits + " \n:/.,?&=#'\"[]()$%-+", max_size=80))
def test_a_text_without_user_and_secret_parameter_stays_as_it_is(text: str) -> None:
    named = r"(?i)token|sig|auth|pass|pwd|secret|credential|key"
    if not re.search(named, text):
        assert redact(text) == text


def test_redacted_values_are_recognized() -> None:
    assert is_redacted(redact("clone http://u:p@h/x"))
    assert is_redacted(redact("http://h/x?a=1&token=2"))
    assert not is_redacted("http://h/**** and http://u@h")


def test_values_of_documents_keep_their_shape() -> None:
    url, masked = "http://u:p@h/", "http://****@h/"
    document = {"a": [url, 1, None], "b": {"c": (url, True)}}
    assert redact_values(document) == {"a": [masked, 1, None], "b": {"c": (masked, True)}}
