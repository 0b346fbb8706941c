"""One-shot timers of Textual fire once, even on a busy machine."""

from __future__ import annotations

import time

import pytest
from textual.notifications import Notification
from textual.widgets._toast import Toast

from hai_tui.app import HaiApp


def _hold_up_the_process() -> None:
    """Block the process between two lines of a timer's start, as on a busy machine."""
    time.sleep(0.01)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("delay", [-60.0, -3.4e-05, 0.0, 1e-05])
async def test_a_timer_fires_once_also_when_it_is_late(drive, server, delay: float) -> None:
    async with drive(server.profile) as tui:
        fired: list[float] = []
        tui.app.set_timer(delay, lambda: fired.append(delay))
        _hold_up_the_process()
        await tui.until(lambda: fired)
        await tui.app.screen.set_timer(delay)._task
        assert fired == [delay]


@pytest.mark.timeout(20)
async def test_a_notification_that_expires_while_it_is_shown_leaves_the_app_alive(
    drive, server
) -> None:
    async with drive(server.profile) as tui:
        assert isinstance(tui.app, HaiApp)
        toast = Toast(Notification("saved", timeout=1, raised_at=time.time() - 2))
        await tui.app.screen.mount(toast)
        await tui.until(lambda: not tui.app.screen.query(Toast))
