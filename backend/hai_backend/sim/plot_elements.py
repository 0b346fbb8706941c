"""What is drawn in each plot of the report: outcomes over one another, told apart by colour."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from hai_backend.domain.priority import LEVELS
from hai_backend.sim.metrics import end, percentile, sizes, slowdown, user_shares, wait
from hai_backend.sim.results import Result

COLORS = ("#1f6feb", "#e36209", "#1a7f5a", "#8250df", "#bf3989", "#9a6700", "#0c7792", "#57606a")
"""Told apart by people who see colours differently, too; past eight they come again with dashes."""

_POINTS = 400  # of a curve: more than a screen shows
_BINS = 160  # of a curve over time

_TIMES = {1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36000: "10 h"}
_TIMES |= {86400 * days: f"{days} d" for days in (3, 10, 30, 100)}

_COUNTS = ((0, 0), (1, 1), (2, 2), (3, 5), (6, 10), (11, 20), (21, 50), (51, 10**9))


def _look(i: int) -> dict[str, Any]:
    dash = ("-", "--", ":", "-.")[i // len(COLORS) % 4]
    return {"color": COLORS[i % len(COLORS)], "linestyle": dash}


def waits(axes: Axes, results: Sequence[Result]) -> None:
    """Waits of all jobs, cumulated."""
    for i, result in enumerate(results):
        values = [max(1.0, wait(fate)) for fate in result.outcome.fates]
        _share_below(axes, values, result.label, i)
    axes.set_xscale("log")
    longest = max((wait(f) for r in results for f in r.outcome.fates), default=1.0)
    ticks = [seconds for seconds in _TIMES if seconds < max(60.0, longest) * 2]
    axes.set_xticks(ticks, [_TIMES[seconds] for seconds in ticks])
    axes.minorticks_off()
    axes.set_xlim(0.9, max(60.0, longest) * 1.2)
    axes.set_xlabel("wait: submission to end, less the run time")


def slowdowns(axes: Axes, results: Sequence[Result]) -> None:
    """Slowdowns of all jobs, cumulated."""
    for i, result in enumerate(results):
        _share_below(axes, [slowdown(fate) for fate in result.outcome.fates], result.label, i)
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
    """Nodes held over time."""
    last = max((f.job.submit for r in results for f in r.outcome.fates), default=0.0)
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
    """Days, and the mean share of the nodes held around each."""
    step = (end(result.outcome.fates) or 1.0) / _BINS
    total = [0.0, *_integral(result, step)]
    means = [100 * (b - a) / step / result.outcome.nodes for a, b in pairwise(total)]
    return [(i + 0.5) * step / 86400 for i in range(_BINS)], means


def _integral(result: Result, step: float) -> list[float]:
    """Node-seconds held until the end of each bin."""
    usage = result.outcome.usage
    times = [use.at for use in usage]
    sums = [0.0]
    for a, b in pairwise(usage):
        sums.append(sums[-1] + a.held * (b.at - a.at))
    found = []
    for until in (step * (i + 1) for i in range(_BINS)):
        k = bisect_left(times, until) - 1
        found.append(sums[k] + usage[k].held * (until - times[k]) if k >= 0 else 0.0)
    return found


def suspensions(axes: Axes, results: Sequence[Result]) -> None:
    """How often jobs were suspended."""
    shares = [[_between(result, low, high) for low, high in _COUNTS] for result in results]
    shown = max((i for row in shares for i, share in enumerate(row) if share), default=0) + 1
    names = [_count_name(low, high) for low, high in _COUNTS[:shown]]
    _bars(axes, names, [row[:shown] for row in shares], results)
    axes.yaxis.set_major_formatter(PercentFormatter())
    axes.set_ylabel("jobs")
    axes.set_xlabel("times suspended")


def _between(result: Result, low: int, high: int) -> float:
    fates = result.outcome.fates
    return 100 * sum(low <= fate.suspensions <= high for fate in fates) / max(1, len(fates))


def _count_name(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low} and more" if high == _COUNTS[-1][1] else f"{low}–{high}"


def priorities(axes: Axes, results: Sequence[Result]) -> None:
    """Mean waits of the levels."""
    waits = [result.figures["wait_by_priority_h"] for result in results]
    tables = [wait for wait in waits if isinstance(wait, dict)]
    present = [level for level in LEVELS if any(level.name in table for table in tables)]
    names = [level.name.replace("_", " ").lower() for level in present]
    _bars(axes, names, [[t.get(level.name, 0.0) for level in present] for t in tables], results)
    axes.set_ylabel("mean wait, hours")


def _bars(
    axes: Axes, names: Sequence[str], values: Sequence[Sequence[float]], results: Sequence[Result]
) -> None:
    """Groups of bars, one bar per outcome."""
    wide = 0.8 / len(results)
    for i, (result, row) in enumerate(zip(results, values, strict=True)):
        places = [k - 0.4 + wide * (i + 0.5) for k in range(len(names))]
        color = COLORS[i % len(COLORS)]
        axes.bar(places, row, wide * 0.92, color=color, label=result.label)
    axes.set_xticks(range(len(names)), names)
    axes.grid(axis="x", visible=False)


def lost(axes: Axes, results: Sequence[Result]) -> None:
    """Node-hours without progress."""
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
    """Shares of all users, ascending."""
    for i, result in enumerate(results):
        size = sizes(result.outcome.fates, result.gpus_per_node, result.packed)
        shares = sorted(100 * s for s in user_shares(result.outcome.fates, size).values())
        steps = [100 * k / max(1, len(shares) - 1) for k in range(len(shares))]
        axes.plot(steps, shares, label=f"{result.label}: {result.number('jain'):.3f}", **_look(i))
    axes.set_ylim(0, 103)
    axes.set_xlim(0, 100)
    axes.xaxis.set_major_formatter(PercentFormatter())
    axes.yaxis.set_major_formatter(PercentFormatter())
    axes.set_ylabel("of their jobs' time at work")
    axes.set_xlabel("users, from the worst served to the best")
