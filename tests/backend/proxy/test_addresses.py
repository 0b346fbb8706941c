"""Public addresses of services, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.proxy.addresses import Addresses, Target, addresses_of

NAMES = Addresses("https", "hai.example.org", "")
PATHS = Addresses("https", "hai.example.org", ":8443", by_path=True)
SERVICE = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


@given(st.integers(1, 10**12), st.one_of(st.just(""), SERVICE), st.sampled_from([NAMES, PATHS]))
def test_url_is_parsed_back(task_id: int, service: str, addresses: Addresses) -> None:
    origin = addresses.origin(task_id, service)
    base = addresses.base_url(task_id, service)
    target = addresses.parse(origin.removeprefix("https://"), f"{base}a/b")
    assert target is not None
    assert (target.task_id, target.path.endswith("/a/b")) == (task_id, True)
    assert target.service in (service, "" if service == "main" else service)
    assert addresses.url(task_id, service) == origin + base


@pytest.mark.parametrize(
    ("host", "path"),
    [
        pytest.param("hai.example.org", "/", id="the domain itself"),
        pytest.param("t5.hai.example.org.evil.org", "/", id="another domain behind"),
        pytest.param("t5.evil.org", "/", id="another domain"),
        pytest.param("t5hai.example.org", "/", id="no dot"),
        pytest.param("t05.hai.example.org", "/", id="leading zero"),
        pytest.param("t-5.hai.example.org", "/", id="negative"),
        pytest.param("x.t5.hai.example.org", "/", id="deeper"),
        pytest.param("-t5.hai.example.org", "/", id="no service"),
        pytest.param("t5.hai.example.org", "http://t6.hai.example.org/", id="absolute"),
        pytest.param("", "/", id="none"),
        pytest.param("t5.hai.example.org:x", "/", id="no port"),
    ],
)
def test_unknown_hosts_have_no_target(host: str, path: str) -> None:
    assert NAMES.parse(host, path) is None


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/t/5",
        "/t/x/main/",
        "/t/0/main/",
        "/t/5/UP/",
        "/t/5/../6/main/",
        "/t/5/a%2Fb/",
        "//t/5/main/",
    ],
)
def test_invalid_paths_have_no_target(path: str) -> None:
    assert PATHS.parse("hai.example.org:8443", path) is None


def test_paths_of_the_proxy_are_recognized() -> None:
    assert NAMES.parse("T5.HAI.example.org:443", "/.hai/login") == Target(
        5, "", "/.hai/login", "", True
    )
    assert PATHS.parse("hai.example.org", "/t/5/.hai/login") == Target(
        5, "", "/.hai/login", "/t/5", True
    )
    target = PATHS.parse("hai.example.org", "/t/5/main/.hai/login")
    assert target is not None
    assert not target.for_proxy


def test_addresses_from_settings() -> None:
    assert addresses_of("", False, "127.0.0.1:8080", False) == Addresses(
        "http", "localhost", ":8080"
    )
    assert addresses_of("https://h.example:444", True, "", True) == Addresses(
        "https", "h.example", ":444", True
    )
    assert addresses_of("https://h.example", False, "", False) == Addresses(
        "https", "h.example", ""
    )


def test_address_of_ipv6() -> None:
    where = addresses_of("http://[fd00::1]:7480", True, "", False)
    assert where.url(5, "") == "http://[fd00::1]:7480/t/5/main/"
    for host in ("[fd00::1]:7480", "[FD00::1]"):
        assert where.parse(host, "/t/5/main/x") == Target(5, "", "/x", "/t/5/main")
