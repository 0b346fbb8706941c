"""Settings for all tests: property tests have no deadline, and Ctrl-C works in commands that tests start."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, settings

from tests import tiers

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if settings.get_current_profile_name() != "mutation":  # which has the same settings
    settings.load_profile("busy")
# Background processes ignore SIGINT, and the commands that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    for tier, description in tiers.TIERS.items():
        config.addinivalue_line("markers", f"{tier}: {description} (make test-{tier})")


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        tiers.mark(item)


@pytest.fixture(scope="session")
def postgres() -> str:
    """The PostgreSQL server that HAI_TEST_POSTGRES names."""
    if server := os.environ.get("HAI_TEST_POSTGRES"):
        return server
    pytest.skip("HAI_TEST_POSTGRES is not set: no PostgreSQL server to test with")


@pytest.fixture
async def postgres_url(postgres: str) -> AsyncIterator[str]:
    """A new database there."""
    from tests.support.databases import database

    async with database(postgres) as url:
        yield url
