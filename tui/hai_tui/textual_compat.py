"""Something that happens once, a little later, also where the machine is busy; and work beside what is shown.

Textual's own single shot is left out without a word when the process is held up for as long as its delay between two
lines of its start (`Timer._run` skips what is late). Whoever waits for it then waits for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from textual.dom import DOMNode


def goes(node: DOMNode) -> bool:
    """True from when it is told to go: its parts go one by one, before it."""
    return node._closing or node._closed or node._pruning


def later(node: DOMNode, seconds: float, callback: Callable[[], None]) -> None:
    """Call it by the app, page or widget after so many seconds, unless that goes."""

    def now() -> None:
        if not goes(node):
            callback()

    asyncio.get_running_loop().call_later(seconds, node.call_next, now)


def in_background(
    node: DOMNode, begin: Callable[[], Awaitable[None]], *, group: str, exclusive: bool = False
) -> None:
    """Run it as a worker that ends with the page or widget. It may end, or be replaced, before it has begun."""
    node.run_worker(begin, group=group, exclusive=exclusive)
