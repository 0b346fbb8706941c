"""The view of a log: its scroll bar shows the position in the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult

from hai_tui.logs.row_cache import RowCache
from hai_tui.logs.rows import LineFormat, rows_of
from hai_tui.logs.window import Change, Line, Window
from hai_tui.widgets.log.view import LogView


class Logs(App[None]):
    """Shows a log window that the test fills."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window()
        self.view = LogView(self.window, str)

    def compose(self) -> ComposeResult:
        yield self.view

    def come(self, count: int) -> None:
        """Append lines to the window."""
        lines = [Line(1, 0, 0.0, f"line {n}") for n in range(count)]
        self.view.apply(self.window.append(lines, "cursor"))


@pytest.mark.parametrize("early", [False, True], ids=["as lines are laid out", "before they are"])
async def test_the_thumb_stands_at_the_end_as_the_log_does(early: bool) -> None:
    app = Logs()
    async with app.run_test(size=(40, 10)) as pilot:
        app.come(30)
        if early:  # before the first layout there is no bar
            app.view._jump(app.view.max_scroll_y)
        await pilot.pause(0.2)
        bar, view = app.view.vertical_scrollbar, app.view
        assert view.scroll_y == view.max_scroll_y > 0
        assert (bar.position, bar.window_virtual_size) == (view.scroll_y, view.virtual_size.height)
        app.come(30)
        await pilot.pause(0.2)
        assert bar.position == view.scroll_y == view.max_scroll_y


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 2), st.integers(0, 1), st.booleans()), max_size=40),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
    st.integers(1, 3),
)
def test_rows_that_are_renewed_are_those_of_all_lines(
    bundles, filtered: bool, together: int
) -> None:
    window = Window(20_000)
    line_format = LineFormat(only=(lambda line: "7" in line.text) if filtered else None)
    kept = RowCache(window, line_format)
    total, number = Change(), 0
    for step, bundle in enumerate(bundles, start=1):
        lines = []
        for run, rank, redraw in bundle:
            number += 1
            lines.append(Line(run, rank, 0.0, f"line {number} " + "." * 2000, redraw))
        total += window.append(lines, str(number))
        if step % together == 0:
            kept.apply(total)
            total = Change()
            assert kept.rows == rows_of(window, line_format)
