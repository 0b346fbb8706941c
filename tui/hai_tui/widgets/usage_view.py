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
_MOST_POINTS = 500


class UsageView(VerticalScroll):
    """`load` gets how many points are wanted, and answers; `draw` gets the answer and the width."""

    DEFAULT_CSS = """
    UsageView { padding: 1 2; height: 1fr; }
    UsageView Static { width: 1fr; height: auto; }
    """

    def __init__(
        self,
        load: Callable[[int], Awaitable[Any]],
        draw: Callable[[Any, int], Text],
        failed: Callable[[HaiError], None],
        id: str | None = None,
    ) -> None:
        self._chart = Static(text("loading"))
        super().__init__(self._chart, id=id)
        self._load, self._draw, self._failed = load, draw, failed
        self._answer: Any = None
        self._reported_error = ""  # why the last question failed
        self._timer: Timer | None = None

    def on_mount(self) -> None:
        """The timer runs while this is seen."""
        self._timer = self.set_interval(
            _REFRESH_SECONDS, self.reload_if_on_top, pause=not self.display
        )

    def on_show(self) -> None:
        """Ask now, then again and again."""
        self.reload()
        if self._timer is not None:
            self._timer.resume()

    def on_hide(self) -> None:
        """Nobody looks: ask nothing."""
        if self._timer is not None:
            self._timer.pause()

    def on_resize(self) -> None:
        """The charts are as wide as the view."""
        self._redraw()

    def begin(self) -> None:
        """What is asked about is known now."""
        if self.display and self._answer is None:
            self.reload()

    @property
    def _on_top(self) -> bool:
        """Not Textual's is_current, which counts the page right below, too."""
        return self.app.screen is self.screen

    def reload_if_on_top(self) -> None:
        """Ask, unless another page lies over this one."""
        if self._on_top:
            self.reload()

    def reload(self) -> None:
        """Ask now."""
        run_in_background(self, self._reload, group="usage", exclusive=True)

    async def _reload(self) -> None:
        from hai.client.errors import HaiError

        try:
            self._answer = await self._load(min(_MOST_POINTS, max(20, 2 * self._width())))
        except HaiError as error:
            self._report(error)
        else:
            self._reported_error = ""
        self._redraw()

    def _report(self, error: HaiError) -> None:
        """Once, however often it is asked, and to nobody who looks at another page."""
        if self._on_top and error.message != self._reported_error:
            self._reported_error = error.message
            self._failed(error)
        if self._answer is None and self.is_mounted:
            self._chart.update(error.message)

    def _width(self) -> int:
        return max(10, self.content_size.width - 1)

    def _redraw(self) -> None:
        if self._answer is not None and self.is_mounted:
            self._chart.update(self._draw(self._answer, self._width()))
