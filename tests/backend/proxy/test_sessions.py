"""Links and sessions are signed, bound to one task, and valid only with a valid token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hai_backend.auth import browser_sessions
from hai_backend.auth.browser_sessions import Pass
from hai_backend.auth.directory import Directory
from hai_backend.domain.accounts.user import TokenScope
from hai_backend.proxy.sessions import LINK_SECONDS, SESSION_SECONDS, Sessions
from hai_backend.store.memory.store import MemoryStore
from hai_backend.testing import ManualClock

KEY = browser_sessions.signing_key(b"secret")
PASS = Pass("session", "ada", 3, 5, 100.0)


def test_credential_is_valid_until_it_expires() -> None:
    text = browser_sessions.sign(KEY, PASS)
    assert browser_sessions.verify(KEY, "session", text, 99.9) == PASS
    assert browser_sessions.verify(KEY, "session", text, 100.0) is None
    assert browser_sessions.verify(KEY, "link", text, 1.0) is None
    assert (
        browser_sessions.verify(browser_sessions.signing_key(b"other"), "session", text, 1.0)
        is None
    )


@given(st.integers(0, 400), st.integers(1, 255))
def test_changed_credential_is_invalid(at: int, by: int) -> None:
    text = browser_sessions.sign(KEY, PASS)
    at %= len(text)
    changed = text[:at] + chr((ord(text[at]) + by) % 128) + text[at + 1 :]
    found = browser_sessions.verify(KEY, "session", changed, 1.0)
    assert found in (None, PASS)  # some bits of the last letter have no meaning


@given(st.text(max_size=2000))
def test_garbage_is_not_a_credential(text: str) -> None:
    assert browser_sessions.verify(KEY, "session", text, 1.0) is None


async def test_link_works_once_and_session_ends_with_its_token() -> None:
    clock = ManualClock()
    directory = Directory(MemoryStore())
    await directory.bootstrap("ada", clock.now())
    token, secret = await directory.create_token("ada", TokenScope.ALL, clock.now())
    sessions = Sessions(b"secret", directory, clock)
    identity = directory.identify(secret, clock.now())
    link = sessions.link_key(identity, 5)
    assert sessions.start_session(6, link) is None
    session = sessions.start_session(5, link)
    assert session is not None
    assert sessions.start_session(5, link) is None
    assert sessions.visitor(5, link) is None
    assert sessions.visitor(6, session) is None
    assert sessions.visitor(5, session) == identity
    assert Sessions(b"secret", directory, clock).visitor(5, session) == identity
    assert sessions.renew(5, session) is None
    clock.advance(SESSION_SECONDS / 2 + 1)
    assert sessions.renew(6, session) is None
    renewed = sessions.renew(5, session)
    assert renewed is not None
    clock.advance(SESSION_SECONDS / 2)
    assert sessions.visitor(5, session) is None
    assert sessions.visitor(5, renewed) == identity
    await directory.revoke_token(token.id)
    assert sessions.visitor(5, renewed) is None


async def test_old_or_foreign_link_is_invalid() -> None:
    clock = ManualClock()
    directory = Directory(MemoryStore())
    secret = await directory.bootstrap("ada", clock.now())
    sessions = Sessions(b"secret", directory, clock)
    identity = directory.identify(str(secret), clock.now())
    assert (
        Sessions(b"secret", directory, clock).start_session(5, sessions.link_key(identity, 5))
        is None
    )
    late = sessions.link_key(identity, 5)
    clock.advance(LINK_SECONDS)
    assert sessions.start_session(5, late) is None
