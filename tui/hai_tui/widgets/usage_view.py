"""A view that loads usage series while it is visible, and draws them in its width."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.containers import VerticalScroll
from textual.timer import Timer

from hai_tui.i18n import text
from hai_tui.runtime.textual_compat import run_in_background
from hai_tui.widgets.plain import Static

if TYPE_CHECKING:
    from hai.client.errors import HaiError

_REFRESH_SECONDS = 20.0
_MIN_POINTS, _MAX_POINTS = 20, 500


class UsageView(VerticalScroll):
    """The view. `load` gets the number of points to load; `draw` gets the answer and the width."""

    DEFAULT_CSS = """
    UsageView { padding: 1 2; height: 1fr; }
    UsageView Static { width: 1fr; height: auto; }
    """

    def __init__(
        self,
        load: Callable[[int], Awaitable[Any]],
        draw: Callable[[Any, int], Text],
        on_error: Callable[[HaiError], None],
        id: str | None = None,
    ) -> None:
        self._chart = Static(text("loading"))
        super().__init__(self._chart, id=id)
        self._load, self._draw, self._on_error = load, draw, on_error
        self._answer: Any = None
        self._reported_error = ""  # the error of the last request
        self._timer: Timer | None = None

    def on_mount(self) -> None:
        """Start a timer that runs while the view is visible."""
        self._timer = self.set_interval(
            _REFRESH_SECONDS, self.reload_if_on_top, pause=not self.display
        )

    def on_show(self) -> None:
        """Load now, then at each interval."""
        self.reload()
        if self._timer is not None:
            self._timer.resume()

    def on_hide(self) -> None:
        """Stop loading."""
        if self._timer is not None:
            self._timer.pause()

    def on_resize(self) -> None:
        self._redraw()

    def load_first(self) -> None:
        """Load if the view is visible and has loaded nothing yet."""
        if self.display and self._answer is None:
            self.reload()

    @property
    def _is_on_top(self) -> bool:
        """Return whether no other page covers this one. (Textual's is_current is True for the page below, too.)"""
        return self.app.screen is self.screen

    def reload_if_on_top(self) -> None:
        if self._is_on_top:
            self.reload()

    def reload(self) -> None:
        """Load in the background."""
        run_in_background(self, self._reload, group="usage", exclusive=True)

    async def _reload(self) -> None:
        from hai.client.errors import HaiError

        try:
            self._answer = await self._load(min(_MAX_POINTS, max(_MIN_POINTS, 2 * self._width())))
        except HaiError as error:
            self._report(error)
        else:
            self._reported_error = ""
        self._redraw()

    def _report(self, error: HaiError) -> None:
        """Report a repeated error only once, and only while the page is on top."""
        if self._is_on_top and error.message != self._reported_error:
            self._reported_error = error.message
            self._on_error(error)
        if self._answer is None and self.is_mounted:
            self._chart.update(error.message)

    def _width(self) -> int:
        return max(10, self.content_size.width - 1)

    def _redraw(self) -> None:
        if self._answer is not None and self.is_mounted:
            self._chart.update(self._draw(self._answer, self._width()))
