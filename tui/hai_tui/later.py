"""Something that happens once, a little later: also where the machine is busy.

Textual's own single shot is left out without a word when the process is held up for as long as its delay between two
lines of its start (`Timer._run` skips what is late). Whoever waits for it then waits for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.message_pump import MessagePump


def later(pump: MessagePump, seconds: float, callback: Callable[[], None]) -> None:
    """Call it on the pump (the app, a page, a widget) after so many seconds, if that is still there."""
    asyncio.get_running_loop().call_later(seconds, pump.call_next, callback)
