"""The plots of the report, each an SVG; all outcomes overlaid. Loaded only when a report is asked for."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hai_backend.sim import plot_elements
from hai_backend.sim.results import Result

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "hai",  # the same outcomes give the same file
    "text.parse_math": False,  # a name may hold a $
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8c959f",
    "axes.labelcolor": "#424a53",
    "xtick.color": "#57606a",
    "ytick.color": "#57606a",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e8ec",
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
}
_SIZE = (6.4, 3.4)  # inches, without names of outcomes
_LINE = 0.22  # inches of a line of names
_WIDEST = 72  # letters that fit beside one another


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot with what it shows, in a sentence for readers."""

    title: str
    text: str
    svg: str


_Draw = Callable[[Axes, Sequence[Result]], None]


def plots(results: Sequence[Result]) -> list[Plot]:
    """Every plot that says something about these outcomes."""
    levels = {fate.job.priority for result in results for fate in result.outcome.fates}
    with mpl.rc_context(_STYLE):
        return [
            Plot(title, text, _svg(draw, results))
            for title, text, draw in _PLOTS
            if draw is not plot_elements.priorities or len(levels) > 1
        ]


def _svg(draw: _Draw, results: Sequence[Result]) -> str:
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    draw(axes, results)
    if len(results) > 1:
        _add_names(figure, axes, results)
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _add_names(figure: Figure, axes: Axes, results: Sequence[Result]) -> None:
    """Below the plot, which keeps its size however many names there are; bars may bear their names themselves."""
    beside = max(1, min(4, _WIDEST // (8 + max(len(result.label) for result in results))))
    lines = -(-len(results) // beside)
    if axes.get_legend_handles_labels()[0]:
        even = -(-len(results) // lines)
        figure.legend(loc="outside lower center", ncols=even, handlelength=1.6)
        figure.set_figheight(_SIZE[1] + _LINE * lines)
    else:
        figure.set_figheight(_SIZE[1] + _LINE * max(0, len(results) - 8))


_PLOTS: tuple[tuple[str, str, _Draw], ...] = (
    (
        "Wait",
        "Share of the jobs that waited no longer than so. A curve further to the upper left is"
        " better; waits under a second are drawn at one second.",
        plot_elements.waits,
    ),
    (
        "Slowdown",
        "Share of the jobs that took no more than so many times their run time.",
        plot_elements.slowdowns,
    ),
    (
        "Occupancy",
        "Share of the nodes that jobs held. What counts is the part before the last submission;"
        " after it the cluster runs empty.",
        plot_elements.occupancy,
    ),
    ("Suspensions", "Share of the jobs that were suspended so often.", plot_elements.suspensions),
    (
        "Lost node-hours",
        "Node-time held without progress: leaving nodes, coming back to them, loading.",
        plot_elements.lost,
    ),
    (
        "Fairness between users",
        "Of the time for which a user's jobs existed, the part in which they ran. A flat curve means"
        " that all users were slowed down alike; beside each name stands Jain's index.",
        plot_elements.users,
    ),
    ("Wait by priority", "Mean wait of the jobs of each level.", plot_elements.priorities),
)
