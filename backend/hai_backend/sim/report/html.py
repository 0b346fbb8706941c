"""The report of a simulation: one self-contained HTML file."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from hai_backend.sim.report.comparison import Row, rows
from hai_backend.sim.report.results import Result

if TYPE_CHECKING:
    from hai_backend.sim.report.plots import Plot

_CSS = """
:root { color-scheme: light; --ink: #1f2328; --soft: #59636e; --line: #d8dee4; --ground: #f6f8fa; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 40px 24px 56px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 0 0 2px; }
p { margin: 0; color: var(--soft); }
.facts { display: flex; flex-wrap: wrap; gap: 4px 28px; margin: 14px 0 28px; padding: 0; list-style: none; }
.facts b { font-weight: 600; }
.card { background: #fff; border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; }
.card p { font-size: 13.5px; margin-bottom: 8px; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 18px;
        margin-top: 18px; }
.grid .card { display: flex; flex-direction: column; }
.card img { display: block; width: 100%; height: auto; margin-top: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; min-width: min(100%, 460px); font-variant-numeric: tabular-nums; }
th, td { padding: 5px 14px; text-align: right; white-space: nowrap; border-bottom: 1px solid #edf0f2; }
th { font-weight: 600; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; color: var(--soft); }
tbody tr:last-child td { border-bottom: 0; }
td.best { font-weight: 650; color: #116329; background: #eaf7ee; }
i.key { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 7px; }
footer { margin-top: 26px; font-size: 13.5px; color: var(--soft); }
@media print { body { background: #fff; } .card { break-inside: avoid; } }
"""

_DEFINITIONS = (
    ("JCT", "from submission to end."),
    ("Wait", "JCT less the pure run time: queueing, suspended time and overhead."),
    ("Bounded slowdown", "the larger of 1 and JCT / max(run time, 10 min)."),
    ("Occupancy", "node-time held until the last submission, of all node-time until then."),
    (
        "Saturation",
        "node-time held of what could be held; 100 %: no node idled while a job waited for it.",
    ),
    ("Useful share", "work of the node-time held; the rest are the lost node-hours."),
    (
        "Jain index",
        "of the users' shares of time at work, each job counted by its nodes; 1: all were slowed down alike.",
    ),
)


def report(results: Sequence[Result], settings: Mapping[str, Any]) -> str:
    """Return the report as HTML text."""
    from hai_backend.sim.report.plots import COLORS, plots

    title = "Simulation of " + ", ".join(dict.fromkeys(_file(r.trace) for r in results))
    keys = [COLORS[i % len(COLORS)] for i in range(len(results))]
    cards = "".join(map(_card, plots(results)))
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_CSS}</style></head><body><main>\n"
        f"<h1>{escape(title)}</h1>{_facts(results, settings)}\n"
        f'<section class="card wide">{_table(results, keys)}</section>\n'
        f'<div class="grid">{cards}</div>\n'
        f"<footer>{_definitions()}</footer></main></body></html>\n"
    )


def _file(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _facts(results: Sequence[Result], settings: Mapping[str, Any]) -> str:
    jobs = {result.trace: _jobs(result) for result in results}
    facts = {
        "jobs": "; ".join(jobs.values()),
        "nodes": ", ".join(dict.fromkeys(f"{r.outcome.nodes:,}" for r in results)),
        **{name.replace("_", " "): _formatted(value) for name, value in settings.items()},
    }
    items = (f"<li>{escape(name)} <b>{escape(text)}</b></li>" for name, text in facts.items())
    return f'<ul class="facts">{"".join(items)}</ul>'


def _jobs(result: Result) -> str:
    jobs = [record.job for record in result.outcome.records]
    users = len({job.user for job in jobs})
    days = max((job.submit for job in jobs), default=0.0) / 86400
    return f"{len(jobs):,} of {users:,} users in {days:.1f} days"


def _formatted(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _table(results: Sequence[Result], keys: Sequence[str]) -> str:
    heads = "".join(
        f'<th><i class="key" style="background:{key}"></i>{escape(result.label)}</th>'
        for result, key in zip(results, keys, strict=True)
    )
    body = "".join(map(_line, rows(results)))
    return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _line(row: Row) -> str:
    cells = (
        f'<td class="best">{cell}</td>' if i in row.best else f"<td>{cell}</td>"
        for i, cell in enumerate(row.cells)
    )
    return f"<tr><td>{escape(row.title)}</td>{''.join(cells)}</tr>"


def _card(plot: Plot) -> str:
    data = base64.b64encode(plot.svg.encode()).decode()
    image = f'<img alt="{escape(plot.title)}" src="data:image/svg+xml;base64,{data}">'
    return f'<section class="card"><h2>{escape(plot.title)}</h2><p>{escape(plot.text)}</p>{image}</section>'


def _definitions() -> str:
    return " ".join(f"<b>{name}</b>: {escape(text)}" for name, text in _DEFINITIONS)
