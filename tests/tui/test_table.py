"""The table draws only changed rows, and garbage collection waits for a pause in typing."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Input

from hai_tui.formatting.cells import Cell, Column
from hai_tui.runtime.gc_scheduler import IDLE_SECONDS, IdleCollector, postpone_full_collections
from hai_tui.widgets.table.virtual_table import VirtualTable


class Tables(App[None]):
    """A table of numbers, and an input line that can take the focus."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.made: Counter[int] = Counter()
        self.says = {n: str(n) for n in range(1000)}

    def compose(self) -> ComposeResult:
        columns = [Column("n", "n", 8, self._cell), Column("age", "age", 8, self._age)]
        yield VirtualTable(columns, lambda id: id, lambda: self.now)
        yield Input()

    def on_mount(self) -> None:
        self.table.focus()
        self.table.show(range(1000))

    @property
    def table(self) -> VirtualTable:
        return self.query_one(VirtualTable)

    def _cell(self, id: int, now: float) -> Cell:
        self.made[id] += 1
        return Cell(self.says[id], "good" if id % 2 else "plain")

    def _age(self, id: int, now: float) -> str:
        return str(int(now) if id == 2 else 0)

    def lines(self) -> list[str]:
        strips = self.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


async def test_a_line_is_made_again_only_when_its_row_says_something_else() -> None:
    app = Tables()
    async with app.run_test(size=(40, 20)) as pilot:
        await pilot.pause(0.1)
        app.made.clear()
        await pilot.press("tab", "shift+tab")  # the focus leaves and returns
        assert not app.made
        app.says[3] = "three"
        app.table.changed([3, 900])
        await pilot.pause()
        assert app.made == {3: 1}
        assert "three" in app.lines()[4]
        await pilot.press("down")
        assert set(app.made) == {
            0,
            1,
            3,
        }  # the old and the new row of the cursor, and the changed row


async def test_ages_go_on_where_they_are_seen() -> None:
    app = Tables()
    async with app.run_test(size=(40, 20)) as pilot:
        app.now += 7
        app.table._refresh_ages()
        await pilot.pause()
        assert app.lines()[3].endswith("107")
        app.now += 7
        app.table.reorder([5, 2, 1])  # rows drawn after a new order show their current age
        await pilot.pause()
        assert app.lines()[2].endswith("114")


async def test_a_row_shows_its_cells_in_any_width_and_scrolled_sideways() -> None:
    app = Tables()
    async with app.run_test(size=(14, 10)) as pilot:
        app.table.all_columns = True
        app.table.set_columns(app.table.columns)
        await pilot.press("right")
        assert app.table.scroll_offset.x > 0
        assert "100" in app.lines()[3]


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


class Ring:
    """An object in a reference cycle, which only the garbage collector can free."""

    def __init__(self) -> None:
        self.itself = self


def rounds_of_garbage(count: int) -> None:
    young, middle, _ = gc.get_threshold()
    gc.collect()
    kept = [Ring() for _ in range(young * (middle + 2) * count)]
    kept.clear()


@pytest.mark.parametrize(
    ("rounds", "idle", "looked"),
    [
        pytest.param(3, IDLE_SECONDS, True, id="at rest"),
        pytest.param(3, IDLE_SECONDS / 2, False, id="somebody types"),
        pytest.param(0, 60.0, False, id="nothing new"),
        pytest.param(21, 0.0, True, id="too much, whoever types"),
    ],
)
def test_garbage_is_collected_while_nobody_types(thresholds, rounds, idle, looked) -> None:
    postpone_full_collections()
    gc.set_threshold(50, 2, gc.get_threshold()[2])
    now = 1000.0
    rest = IdleCollector(lambda: now)
    rest.on_input()
    rounds_of_garbage(rounds)
    now += idle
    assert rest.collect_if_due() is looked
