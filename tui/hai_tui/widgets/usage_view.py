"""A view that asks for series while it is seen, again and again, and draws them as wide as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.containers import VerticalScroll
from textual.timer import Timer

from hai_tui.i18n import text
from hai_tui.textual_compat import in_background
from hai_tui.widgets.plain import Static

if TYPE_CHECKING:
    from hai.client.errors import HaiError

_REFRESH_SECONDS = 20.0
_MOST_POINTS = 500


class UsageView(VerticalScroll):
    """`ask` gets how many points are wanted, and answers; `draw` gets the answer and the width."""

    DEFAULT_CSS = """
    UsageView { padding: 1 2; height: 1fr; }
    UsageView Static { width: 1fr; height: auto; }
    """

    def __init__(
        self,
        ask: Callable[[int], Awaitable[Any]],
        draw: Callable[[Any, int], Text],
        failed: Callable[[HaiError], None],
        id: str | None = None,
    ) -> None:
        self._words = Static(text("loading"))
        super().__init__(self._words, id=id)
        self._ask, self._draw, self._failed = ask, draw, failed
        self._answer: Any = None
        self._told = ""  # why the last question failed
        self._timer: Timer | None = None

    def on_mount(self) -> None:
        """The timer runs while this is seen."""
        self._timer = self.set_interval(_REFRESH_SECONDS, self.look_again, pause=not self.display)

    def on_show(self) -> None:
        """Ask now, then again and again."""
        self.look()
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
            self.look()

    @property
    def _on_top(self) -> bool:
        """Not Textual's is_current, which counts the page right below, too."""
        return self.app.screen is self.screen

    def look_again(self) -> None:
        """Ask, unless another page lies over this one."""
        if self._on_top:
            self.look()

    def look(self) -> None:
        """Ask now."""
        in_background(self, self._look, group="usage", exclusive=True)

    async def _look(self) -> None:
        from hai.client.errors import HaiError

        try:
            self._answer = await self._ask(min(_MOST_POINTS, max(20, 2 * self._width())))
        except HaiError as error:
            self._tell(error)
        else:
            self._told = ""
        self._redraw()

    def _tell(self, error: HaiError) -> None:
        """Once, however often it is asked, and to nobody who looks at another page."""
        if self._on_top and error.message != self._told:
            self._told = error.message
            self._failed(error)
        if self._answer is None and self.is_mounted:
            self._words.update(error.message)

    def _width(self) -> int:
        return max(10, self.content_size.width - 1)

    def _redraw(self) -> None:
        if self._answer is not None and self.is_mounted:
            self._words.update(self._draw(self._answer, self._width()))
