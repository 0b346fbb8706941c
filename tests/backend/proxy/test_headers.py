"""Headers that the proxy forwards, and requests that it refuses because of their headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.proxy.headers import (
    cookie_value,
    is_cross_origin,
    set_cookie,
    to_browser,
    to_service,
)

COOKIE = "hai_session"


def service_headers(*headers: tuple[str, str], connection: str = "") -> dict[str, str]:
    found = to_service(headers, connection, "t5.localhost", "http", "ada", COOKIE)
    assert len({name.lower() for name, _ in found}) == len(found)
    return {name.lower(): value for name, value in found}


@pytest.mark.parametrize(
    "name",
    [
        *("Authorization", "authorization", "Connection", "Upgrade", "TE", "Transfer-Encoding"),
        *(
            "Forwarded",
            "X-Forwarded-For",
            "x-real-ip",
            "Expect",
            "Proxy-Authorization",
            "Keep-Alive",
        ),
        *("Sec-WebSocket-Key", "X-Hai-Anything", "X_Hai_User", "x_forwarded_for", "X-Hai_User"),
    ],
)
def test_headers_that_are_not_forwarded_to_a_service(name: str) -> None:
    assert name.lower() not in service_headers((name, "x"))


def test_headers_named_by_connection_are_removed() -> None:
    assert "x-private" not in service_headers(("X-Private", "1"), connection="close, X-Private")
    assert service_headers(("X-Other", "1"), connection="close")["x-other"] == "1"


@pytest.mark.parametrize(
    ("cookies", "left"),
    [
        pytest.param("hai_session=s", None, id="ours alone"),
        pytest.param("a=1; hai_session=s; b=2", "a=1; b=2", id="in the middle"),
        pytest.param("hai_session=s; hai_session=t; c=3", "c=3", id="twice"),
        pytest.param(" hai_session =s; d=4", "d=4", id="with blanks"),
        pytest.param("xhai_session=s; e", "xhai_session=s; e", id="another name"),
    ],
)
def test_session_cookie_is_not_forwarded(cookies: str, left: str | None) -> None:
    assert service_headers(("Cookie", cookies)).get("cookie") == left


def test_service_gets_user_and_public_address() -> None:
    found = service_headers(("Host", "evil"), ("X-Hai-User", "root"))
    assert (found["host"], found["x-hai-user"], found["x-forwarded-proto"]) == (
        "t5.localhost",
        "ada",
        "http",
    )


@pytest.mark.parametrize(
    ("value", "expected_cookie"),
    [
        pytest.param("a=1; Path=/", "a=1; Path=/", id="own"),
        pytest.param("a=1; Domain=.example.org; Path=/", "a=1; Path=/", id="for siblings"),
        pytest.param("a=1; DOMAIN = x", "a=1", id="blanks and capitals"),
        pytest.param("hai_session=x; Path=/", None, id="ours"),
    ],
)
def test_cookies_of_services(value: str, expected_cookie: str | None) -> None:
    found = [v for _, v in to_browser([("Set-Cookie", value)], "", COOKIE)]
    assert found == ([] if expected_cookie is None else [expected_cookie])


NAMES = st.sampled_from([COOKIE, f" {COOKIE}\t", "x", ""])


@given(st.lists(st.tuples(NAMES, st.text('ab= ",\t', max_size=5))))
def test_session_cookie_must_occur_once(pairs: list[tuple[str, str]]) -> None:
    header = ";".join(f"{name}={value}" for name, value in pairs)
    ours = [value.strip() for name, value in pairs if name.strip() == COOKIE]
    assert cookie_value(header, COOKIE) == (ours[0] if len(ours) == 1 else "")


@given(st.text(max_size=60))
def test_cookie_of_any_shape_is_a_part_of_its_header(header: str) -> None:
    assert cookie_value(header, COOKIE) in header


def test_two_session_cookies_are_ignored() -> None:
    assert cookie_value("hai_session=a; x=1", COOKIE) == "a"
    assert cookie_value("hai_session=a; hai_session=b", COOKIE) == ""


OWN = "https://t5.example.org"


@pytest.mark.parametrize(
    ("headers", "method", "expected"),
    [
        pytest.param({}, "POST", False, id="no browser"),
        pytest.param({"Origin": OWN}, "POST", False, id="own page"),
        pytest.param({"Origin": OWN + ".evil.org"}, "GET", True, id="prefix"),
        pytest.param({"Origin": "null"}, "GET", True, id="null"),
        pytest.param({"Sec-Fetch-Site": "none"}, "GET", False, id="typed"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, "GET", True, id="sibling's image"),
        pytest.param(
            {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, "GET", False, id="link"
        ),
        pytest.param(
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, "POST", True, id="form"
        ),
        pytest.param(
            {
                "Sec-Fetch-Site": "same-site",
                "Sec-Fetch-Mode": "navigate",
                "Sec-Fetch-Dest": "iframe",
            },
            "GET",
            True,
            id="frame",
        ),
        pytest.param({"Sec-Fetch-Site": "odd"}, "GET", True, id="unknown word"),
    ],
)
def test_requests_of_other_origins_are_detected(
    headers: dict[str, str], method: str, expected: bool
) -> None:
    assert is_cross_origin(headers, OWN, method) is expected


def test_session_cookie_is_restricted() -> None:
    made = set_cookie("__Host-hai_session", "v", "/", 60, secure=True)
    assert made == "__Host-hai_session=v; HttpOnly; Max-Age=60; Path=/; SameSite=Lax; Secure"
