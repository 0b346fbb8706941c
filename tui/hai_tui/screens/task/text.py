"""The content of the tabs of a task's page: texts and cards. Does no input or output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from hai.client.tasks.diagnosis import failed_ranks, first_failed_rank
from hai.client.tasks.silent_agents import is_silent, silent_agents_of_run
from hai.client.text.formatting import enum_name, stop_code_names
from hai.client.text.state_style import SILENT, StateStyle, state_style
from hai.v1.task_pb2 import (
    TASK_OUTCOME_FAILED,
    Rank,
    RankState,
    Run,
    RunState,
    Task,
    Waiting,
)
from hai.v1.task_service_pb2 import ExplainTaskResponse, QuotaUse
from hai_tui.formatting.charts import bar
from hai_tui.formatting.table import printable
from hai_tui.formatting.values import held_seconds, local, priority_name, since, span
from hai_tui.i18n import text
from hai_tui.tasks.descriptions import likely_cause
from hai_tui.views.dry_run import task_ahead_text
from hai_tui.views.goodput import checkpoint_times_sentence, goodput_sentences
from hai_tui.views.silent_agents import run_silence_text, task_silence_text
from hai_tui.views.start_forecast import start_sentences
from hai_tui.views.tasks import status
from hai_tui.widgets.plain import Group, Table, grid

Tones = Mapping[str, Style]
Facts = Iterable[tuple[str, str]]

LAST_LINES = 12
"""The last lines of a failed rank that its card shows."""


def state_label(state: str, tones: Tones) -> Text:
    """Return glyph and name of a state."""
    style = state_style(state)
    return Text(f"{style.glyph} {state}", tones[style.tone])


def task_state_label(task: Task, tones: Tones) -> Text:
    """Return glyph and name of a task's status. A silent agent changes the glyph, because the status may be out of
    date.
    """
    if silent_agents_of_run(task.run) is None:
        return state_label(status(task), tones)
    return Text(f"{SILENT.glyph} {status(task)}", tones[SILENT.tone])


def summary(task: Task, waiting: Waiting, now: float, tones: Tones) -> Text:
    """Return the two lines above the tabs: state and size, and the reason."""
    nodes = text("task.nodes", count=task.node_count)
    group = task.group + (f"#{task.zone}" if task.zone else "")
    parts = [
        f"{'★ ' if task.starred else ''}{task.id} {printable(task.name)}",
        task.user,
        priority_name(task.priority),
        text("task.in", nodes=nodes, group=group),
        _age_text(task, now),
    ]
    if task.tags:
        parts.append(text("task.tags", tags=", ".join(task.tags)))
    line = Text().append_text(task_state_label(task, tones))
    line.append("  ").append(" · ".join(part for part in parts if part))
    line.append("\n")
    if silent := task_silence_text(task, now):
        line.append(silent, tones["bad"]).append(" · ")
    reason = waiting.message or task.reason or task.run.reason
    return line.append(printable(reason or (silent and text("silent.unseen"))), tones["quiet"])


def _age_text(task: Task, now: float) -> str:
    if not task.run_count:
        return text("task.created", span=since(task.create_time, now))
    run = text("task.run", number=task.run_count)
    if task.run.start_time.seconds and not task.run.end_time.seconds:
        return f"{run} {text('task.runs.for', span=since(task.run.start_time, now))}"
    return run


def status_line(task: Task, now: float) -> str:
    """Return the age of the task, the time that it has held nodes, and its goodput."""
    parts = [text("task.created", span=since(task.create_time, now))]
    if held_time := held_seconds(task, now):
        parts.append(text("task.used", span=span(held_time)))
    if task.goodput.HasField("share"):
        parts.append(f"goodput {task.goodput.share:.0%}")
    return " · ".join(parts)


def _heading(sentence: str) -> Text:
    return Text(sentence, "bold underline")


def _card(title: str, *body: RenderableType) -> Group:
    return Group(_heading(title), Padding(Group(*body), (0, 0, 1, 2)))


def overview(
    task: Task,
    waiting: Waiting,
    runs: Sequence[Run],
    facts: Facts,
    now: float,
    tones: Tones,
) -> Group:
    """Return the cards that apply to this task, the most urgent first."""
    cards: list[RenderableType] = []
    run = runs[-1] if runs else task.run
    if silent := run_silence_text(run, now):
        explanation = Text(text("silent.card"), tones["quiet"])
        cards.append(_card(text("head.silent"), Text(silent, tones["bad"]), explanation))
    if failure := _failure_lines(run, tones):
        cards.append(_card(text("head.failure"), *failure))
    if waiting.reason:
        cards.append(_card(text("head.waiting"), *_waiting_lines(task, waiting, now)))
        if task.suspend_count and task.reason:
            cards.append(_card(text("head.suspended"), Text(printable(task.reason))))
    if run.ranks:
        title = text("head.ranks", number=run.number)
        cards.append(_card(title, _rank_grid(run, tones), _rank_legend(run, tones)))
    sentences = [*goodput_sentences(task.goodput, now), checkpoint_times_sentence(run)]
    if sentences := [sentence for sentence in sentences if sentence]:
        cards.append(_card(text("head.goodput"), *map(Text, sentences)))
    cards.append(_card(text("head.facts"), _fact_grid(facts)))
    return Group(*cards)


def _failure_lines(run: Run, tones: Tones) -> list[RenderableType]:
    """Return the first failed rank, its last lines and the likely cause; an empty list without a failure."""
    rank = first_failed_rank(run)
    if rank is None:
        return []
    says_more = rank.exit_meaning and not rank.exit_meaning.startswith("exit code")
    meaning = f" ({rank.exit_meaning})" if says_more else ""
    facts = {"rank": rank.index, "node": rank.node, "code": rank.exit_code, "meaning": meaning}
    lines: list[RenderableType] = [Text(f"✗ {text('fail.rank', **facts)}", tones["bad"])]
    if len(run.ranks) > 1:
        facts = {"count": len(failed_ranks(run)), "all": len(run.ranks)}
        lines.append(Text(text("fail.others", **facts)))
    last = [printable(line) for line in rank.last_lines.splitlines()][-LAST_LINES:]
    if last:
        lines.append(Text(text("fail.lines")))
        lines += [
            Text(f"│ {line}", tones["quiet"], no_wrap=True, overflow="ellipsis") for line in last
        ]
    if likely := likely_cause(rank.exit_code, last):
        lines.append(Text(text("fail.likely", cause=likely), tones["busy"]))
    return [*lines, Text(text("fail.next"), tones["quiet"])]


def _waiting_lines(task: Task, waiting: Waiting, now: float) -> Iterator[Text]:
    yield Text(printable(waiting.message or waiting.reason))
    if waiting.queue_place:
        level = priority_name(waiting.effective_priority)
        yield Text(text("why.place", place=waiting.queue_place, group=task.group, priority=level))
    for sentence in start_sentences(waiting.predicted_start, now):
        yield Text(sentence)


def rank_state_name(state: int) -> str:
    """Return RUNNING for RANK_STATE_RUNNING."""
    return enum_name(RankState, state)


def rank_style(rank: Rank) -> StateStyle:
    """Return the style of a rank's state, or that of a silent agent."""
    return SILENT if is_silent(rank) else state_style(rank_state_name(rank.state))


def _rank_grid(run: Run, tones: Tones) -> Text:
    """Return one glyph for each rank in groups of ten; the text wraps at the end of the line."""
    glyphs = Text()
    for rank in run.ranks:
        style = rank_style(rank)
        glyphs.append(style.glyph, tones[style.tone])
        glyphs.append(" " if rank.index % 10 != 9 else "   ")
    return glyphs


def _rank_legend(run: Run, tones: Tones) -> Text:
    counts: dict[str, int] = {}
    for rank in (rank for rank in run.ranks if not is_silent(rank)):
        counts[rank_state_name(rank.state)] = counts.get(rank_state_name(rank.state), 0) + 1
    line = Text()
    for state, count in counts.items():
        line.append_text(state_label(state, tones)).append(f" {count}   ")
    if silent := sum(map(is_silent, run.ranks)):
        line.append(f"{SILENT.glyph} {text('ranks.silent')}", tones[SILENT.tone])
        line.append(f" {silent}")
    return line


def _fact_grid(facts: Facts) -> Table:
    rows = grid(padding=(0, 2))
    for name, value in facts:
        if value and value != "-":
            rows.add_row(Text(text(f"fact.{name}"), "dim"), Text(printable(value)))
    return rows


def task_facts(task: Task, now: float) -> Facts:
    """Yield the names and values of the task's facts."""
    numbers = {
        "runs": task.run_count,
        "suspends": task.suspend_count,
        "failures": task.failure_count,
        "lost": task.node_failure_count,
    }
    yield "type", task.task_type
    yield "created", local(task.create_time)
    yield "started", local(task.start_time)
    yield "finished", local(task.finish_time)
    yield "held", span(held_seconds(task, now))
    yield "runs", text("fact.runs.text", **numbers)
    yield "life", str(task.whole_life_state or "")
    yield "tags", ", ".join(task.tags)


def run_state_name(run: Run) -> str:
    """Return RUNNING for RUN_STATE_RUNNING."""
    return enum_name(RunState, run.state)


def run_end_text(run: Run) -> str:
    """Return why a run ended: the stop code in words, and the reason."""
    stop_text = "+".join(stop_code_names(run.stop_code))
    return " · ".join(part for part in (stop_text, printable(run.reason)) if part)


def explanation(task: Task, answer: ExplainTaskResponse | None, now: float, tones: Tones) -> Group:
    """Return why a task failed; or why it waits, when it may start, what would help, who is ahead, and its history."""
    silent = task_silence_text(task, now)
    if task.outcome == TASK_OUTCOME_FAILED:
        history = [] if answer is None else list(answer.history)
        reason = Text(printable(task.reason), tones["bad"])
        card = _card(text("head.failure"), reason, *_failure_lines(task.run, tones))
        return Group(card, *_list("why.past", history))
    if answer is None or not (answer.waiting.reason or answer.history or silent):
        return Group(Text(text("why.none"), tones["quiet"]))
    cards: list[RenderableType] = []
    if answer.waiting.reason:
        cards.append(_card(text("head.waiting"), *_waiting_lines(task, answer.waiting, now)))
    if silent:
        lines = (Text(f"• {printable(line)}") for line in answer.constraints)
        cards.append(_card(text("head.silent"), Text(silent, tones["bad"]), *lines))
    else:
        constraints = [line for line in answer.constraints if line != answer.waiting.message]
        cards += _list("why.constraints", constraints)
    cards += _list("why.changes", [flip.message for flip in answer.flips], tones["good"])
    flips = {flip.message for flip in answer.flips}
    suggestions = [line for line in answer.suggestions if line not in flips]
    cards += _list("why.silent.do" if silent else "why.suggestions", suggestions)
    if answer.HasField("nodes") and answer.nodes.total:
        cards.append(_card(text("why.nodes"), _node_bars(answer, tones)))
    if answer.quotas:
        rows = (Text(_quota_text(row)) for row in answer.quotas)
        cards.append(_card(text("why.quotas", user=task.user), *rows))
    cards += _list("why.before", [task_ahead_text(other) for other in answer.ahead])
    return Group(*cards, *_list("why.past", list(answer.history)))


def _list(key: str, lines: Sequence[str], style: Style | None = None) -> list[RenderableType]:
    if not lines:
        return []
    return [_card(text(key), *(Text(f"• {printable(line)}", style or "") for line in lines))]


_NODE_KINDS = (
    ("free", "good"), ("leaving", "busy"), ("takeable", "waits"), ("protected", "held"),
    ("firm", "plain"), ("cordoned", "quiet"), ("not_ready", "bad"),
)  # fmt: skip


def _node_bars(answer: ExplainTaskResponse, tones: Tones) -> Table:
    rows = grid(padding=(0, 2))
    for kind, tone in _NODE_KINDS:
        count = getattr(answer.nodes, kind)
        if count:
            share = Text(bar(count / answer.nodes.total, 20), tones[tone])
            rows.add_row(Text(text(f"nodes.{kind}")), Text(str(count), justify="right"), share)
    return rows


def _quota_text(row: QuotaUse) -> str:
    level = text("quota.all") if row.priority < 0 else priority_name(row.priority)
    numbers = {key: f"{getattr(row, key):.4g}" for key in ("held", "allowed", "after")}
    return text("quota.row", level=level, **numbers)
