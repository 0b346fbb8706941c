"""The plots of the report, each an SVG that shows all outcomes. This module is loaded only for a report."""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from hai_backend.domain.priority import LEVELS
from hai_backend.sim.report.metrics import end, percentile, sizes, slowdown, user_shares, wait
from hai_backend.sim.report.results import Result

COLORS = ("#1f6feb", "#e36209", "#1a7f5a", "#8250df", "#bf3989", "#9a6700", "#0c7792", "#57606a")
"""Told apart by people who see colours differently, too; past eight they come again with dashes."""

_POINTS = 400  # of a curve; a screen shows fewer
_BINS = 160  # of a curve over time

_TIMES = {1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36000: "10 h"}
_TIMES |= {86400 * days: f"{days} d" for days in (3, 10, 30, 100)}

_COUNTS = ((0, 0), (1, 1), (2, 2), (3, 5), (6, 10), (11, 20), (21, 50), (51, 10**9))


def _look(i: int) -> dict[str, Any]:
    dash = ("-", "--", ":", "-.")[i // len(COLORS) % 4]
    return {"color": COLORS[i % len(COLORS)], "linestyle": dash}


def waits(axes: Axes, results: Sequence[Result]) -> None:
    """Plot the cumulative distribution of the waits of all jobs."""
    for i, result in enumerate(results):
        values = [max(1.0, wait(record)) for record in result.outcome.records]
        _share_below(axes, values, result.label, i)
    axes.set_xscale("log")
    longest = max((wait(f) for r in results for f in r.outcome.records), default=1.0)
    ticks = [seconds for seconds in _TIMES if seconds < max(60.0, longest) * 2]
    axes.set_xticks(ticks, [_TIMES[seconds] for seconds in ticks])
    axes.minorticks_off()
    axes.set_xlim(0.9, max(60.0, longest) * 1.2)
    axes.set_xlabel("wait: submission to end, less the run time")


def slowdowns(axes: Axes, results: Sequence[Result]) -> None:
    """Plot the cumulative distribution of the slowdowns of all jobs."""
    for i, result in enumerate(results):
        _share_below(axes, [slowdown(record) for record in result.outcome.records], result.label, i)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}×"))
    axes.set_xlim(left=0.95)
    axes.set_xlabel("bounded slowdown: JCT / max(run time, 10 min)")


def _share_below(axes: Axes, values: Sequence[float], label: str, i: int) -> None:
    ascending = sorted(values)
    shares = [100 * k / _POINTS for k in range(_POINTS + 1)]
    axes.plot([percentile(ascending, s) for s in shares], shares, label=label, **_look(i))
    axes.set_ylim(0, 101)
    axes.yaxis.set_major_formatter(PercentFormatter())
    axes.set_ylabel("jobs")


def occupancy(axes: Axes, results: Sequence[Result]) -> None:
    """Plot the nodes in use over time."""
    last = max((f.job.submit for r in results for f in r.outcome.records), default=0.0)
    for i, result in enumerate(results):
        days, shares = _held(result)
        axes.plot(days, shares, label=result.label, alpha=0.9, **_look(i))
    axes.axvline(last / 86400, color="#8c959f", linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        "last submission ",
        (last / 86400, 0.04),
        xycoords=("data", "axes fraction"),
        ha="right",
        color="#57606a",
        fontsize=9,
    )
    axes.set_ylim(0, 103)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(PercentFormatter())
    axes.set_ylabel("nodes held")
    axes.set_xlabel("days since the first submission")


def _held(result: Result) -> tuple[list[float], list[float]]:
    """Return days, and the mean share of the nodes in use around each day."""
    step = (end(result.outcome.records) or 1.0) / _BINS
    total = [0.0, *_integral(result, step)]
    means = [100 * (b - a) / step / result.outcome.nodes for a, b in pairwise(total)]
    return [(i + 0.5) * step / 86400 for i in range(_BINS)], means


def _integral(result: Result, step: float) -> list[float]:
    """Return the node-seconds in use until the end of each bin."""
    usage = result.outcome.usage
    times = [use.at for use in usage]
    sums = [0.0]
    for a, b in pairwise(usage):
        sums.append(sums[-1] + a.used_nodes * (b.at - a.at))
    found = []
    for until in (step * (i + 1) for i in range(_BINS)):
        k = bisect_left(times, until) - 1
        found.append(sums[k] + usage[k].used_nodes * (until - times[k]) if k >= 0 else 0.0)
    return found


def suspensions(axes: Axes, results: Sequence[Result]) -> None:
    """Plot how often jobs were suspended."""
    shares = [[_between(result, low, high) for low, high in _COUNTS] for result in results]
    shown = max((i for row in shares for i, share in enumerate(row) if share), default=0) + 1
    names = [_count_name(low, high) for low, high in _COUNTS[:shown]]
    _bars(axes, names, [row[:shown] for row in shares], results)
    axes.yaxis.set_major_formatter(PercentFormatter())
    axes.set_ylabel("jobs")
    axes.set_xlabel("times suspended")


def _between(result: Result, low: int, high: int) -> float:
    records = result.outcome.records
    return 100 * sum(low <= record.suspensions <= high for record in records) / max(1, len(records))


def _count_name(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low} and more" if high == _COUNTS[-1][1] else f"{low}–{high}"


def priorities(axes: Axes, results: Sequence[Result]) -> None:
    """Plot the mean waits of the priority levels."""
    waits = [result.figures["wait_by_priority_h"] for result in results]
    tables = [wait for wait in waits if isinstance(wait, dict)]
    present = [level for level in LEVELS if any(level.name in table for table in tables)]
    names = [level.name.replace("_", " ").lower() for level in present]
    _bars(axes, names, [[t.get(level.name, 0.0) for level in present] for t in tables], results)
    axes.set_ylabel("mean wait, hours")


def _bars(
    axes: Axes, names: Sequence[str], values: Sequence[Sequence[float]], results: Sequence[Result]
) -> None:
    """Draw groups of bars, one bar per outcome."""
    wide = 0.8 / len(results)
    for i, (result, row) in enumerate(zip(results, values, strict=True)):
        places = [k - 0.4 + wide * (i + 0.5) for k in range(len(names))]
        color = COLORS[i % len(COLORS)]
        axes.bar(places, row, wide * 0.92, color=color, label=result.label)
    axes.set_xticks(range(len(names)), names)
    axes.grid(axis="x", visible=False)


def lost(axes: Axes, results: Sequence[Result]) -> None:
    """Plot the node-hours without progress."""
    hours = [result.number("lost_node_hours") for result in results]
    colors = [COLORS[i % len(COLORS)] for i in range(len(results))]
    bars = axes.barh(range(len(results)), hours, 0.62, color=colors)
    shares = [1 - result.number("useful_share") for result in results]
    texts = [f" {h:,.1f}  ({100 * s:.2f} %)" for h, s in zip(hours, shares, strict=True)]
    axes.bar_label(bars, texts, color="#424a53", fontsize=9.5)
    axes.set_yticks(range(len(results)), [result.label for result in results])
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.set_xlim(0, max([*hours, 1e-3]) * 1.35)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("node-hours, and share of all node-time held")


def users(axes: Axes, results: Sequence[Result]) -> None:
    """Plot the shares of all users in ascending order."""
    for i, result in enumerate(results):
        size = sizes(result.outcome.records, result.gpus_per_node, result.packed)
        shares = sorted(100 * s for s in user_shares(result.outcome.records, size).values())
        steps = [100 * k / max(1, len(shares) - 1) for k in range(len(shares))]
        axes.plot(steps, shares, label=f"{result.label}: {result.number('jain'):.3f}", **_look(i))
    axes.set_ylim(0, 103)
    axes.set_xlim(0, 100)
    axes.xaxis.set_major_formatter(PercentFormatter())
    axes.yaxis.set_major_formatter(PercentFormatter())
    axes.set_ylabel("of their jobs' time at work")
    axes.set_xlabel("users, from the worst served to the best")


_STYLE: dict[Any, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "hai",  # equal outcomes give equal files
    "text.parse_math": False,  # a name may contain a $
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
_WIDEST = 72  # letters that fit on one line


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot, and a sentence that explains it."""

    title: str
    text: str
    svg: str


_Draw = Callable[[Axes, Sequence[Result]], None]


def plots(results: Sequence[Result]) -> list[Plot]:
    """Return the plots that show something about these outcomes."""
    levels = {record.job.priority for result in results for record in result.outcome.records}
    with mpl.rc_context(_STYLE):
        return [
            Plot(title, text, _svg(draw, results))
            for title, text, draw in _PLOTS
            if draw is not priorities or len(levels) > 1
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
    """Write the names of the outcomes below the plot, which keeps its size. Bars may have the names themselves."""
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
        waits,
    ),
    (
        "Slowdown",
        "Share of the jobs that took no more than so many times their run time.",
        slowdowns,
    ),
    (
        "Occupancy",
        "Share of the nodes that jobs held. What counts is the part before the last submission;"
        " after it the cluster runs empty.",
        occupancy,
    ),
    ("Suspensions", "Share of the jobs that were suspended so often.", suspensions),
    (
        "Lost node-hours",
        "Node-time held without progress: leaving nodes, coming back to them, loading.",
        lost,
    ),
    (
        "Fairness between users",
        "Of the time for which a user's jobs existed, the part in which they ran. A flat curve means"
        " that all users were slowed down alike; beside each name stands Jain's index.",
        users,
    ),
    ("Wait by priority", "Mean wait of the jobs of each level.", priorities),
)
