"""The tabs of the page of a task as text and cards. Pure: values in, renderables out."""

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
from hai_tui.views.dry_run import ahead
from hai_tui.views.goodput import sentences as goodput_sentences
from hai_tui.views.silent_agents import silent_run, silent_task
from hai_tui.views.start_forecast import sentences as start_sentences
from hai_tui.views.tasks import status
from hai_tui.widgets.plain import Group, Table, grid

Tones = Mapping[str, Style]
Facts = Iterable[tuple[str, str]]

LAST_LINES = 12
"""Lines of a failed rank that the card shows."""


def state_label(state: str, tones: Tones) -> Text:
    """Glyph and word of a state."""
    style = state_style(state)
    return Text(f"{style.glyph} {state}", tones[style.tone])


def task_state_label(task: Task, tones: Tones) -> Text:
    """Glyph and word of a task's state; of one with a silent agent another glyph, because it may not be true."""
    if silent_agents_of_run(task.run) is None:
        return state_label(status(task), tones)
    return Text(f"{SILENT.glyph} {status(task)}", tones[SILENT.tone])


def summary(task: Task, waiting: Waiting, now: float, tones: Tones) -> Text:
    """Two lines above the tabs: state and size; why it is so."""
    nodes = text("task.nodes", count=task.node_count)
    group = task.group + (f"#{task.zone}" if task.zone else "")
    parts = [
        f"{'★ ' if task.starred else ''}{task.id} {printable(task.name)}",
        task.user,
        priority_name(task.priority),
        text("task.in", nodes=nodes, group=group),
        _since_when(task, now),
    ]
    if task.tags:
        parts.append(text("task.tags", tags=", ".join(task.tags)))
    line = Text().append_text(task_state_label(task, tones))
    line.append("  ").append(" · ".join(part for part in parts if part))
    line.append("\n")
    if silent := silent_task(task, now):
        line.append(silent, tones["bad"]).append(" · ")
    entries = (
        waiting.message or task.reason or task.run.reason or (silent and text("silent.unseen"))
    )
    return line.append(printable(entries), tones["quiet"])


def _since_when(task: Task, now: float) -> str:
    if not task.run_count:
        return text("task.created", span=since(task.create_time, now))
    run = text("task.run", number=task.run_count)
    if task.run.start_time.seconds and not task.run.end_time.seconds:
        return f"{run} {text('task.runs.for', span=since(task.run.start_time, now))}"
    return run


def status_line(task: Task, now: float) -> str:
    """When it was submitted, what it has used, how much of that was worth it."""
    parts = [text("task.created", span=since(task.create_time, now))]
    if held_time := held_seconds(task, now):
        parts.append(text("task.used", span=span(held_time)))
    if task.goodput.HasField("share"):
        parts.append(f"goodput {task.goodput.share:.0%}")
    return " · ".join(parts)


def heading(sentence: str) -> Text:
    """A title of a card."""
    return Text(sentence, "bold underline")


def _card(title: str, *body: RenderableType) -> Group:
    return Group(heading(title), Padding(Group(*body), (0, 0, 1, 2)))


def overview(
    task: Task,
    waiting: Waiting,
    runs: Sequence[Run],
    entries: Facts,
    now: float,
    tones: Tones,
) -> Group:
    """The cards that matter for this task, the most pressing first."""
    cards: list[RenderableType] = []
    run = runs[-1] if runs else task.run
    if silent := silent_run(run, now):
        explanation = Text(text("silent.card"), tones["quiet"])
        cards.append(_card(text("head.silent"), Text(silent, tones["bad"]), explanation))
    if failed := failure(run, tones):
        cards.append(_card(text("head.failure"), *failed))
    if waiting.reason:
        cards.append(_card(text("head.waiting"), *_waiting(task, waiting, now)))
    if run.ranks:
        title = text("head.ranks", number=run.number)
        cards.append(_card(title, rank_grid(run, tones), _rank_legend(run, tones)))
    if worth := list(goodput_sentences(task.goodput, now)):
        cards.append(_card(text("head.goodput"), *(Text(line) for line in worth)))
    cards.append(_card(text("head.facts"), _grid(entries)))
    return Group(*cards)


def failure(run: Run, tones: Tones) -> list[RenderableType]:
    """Who failed first, how, its last words and the likely cause; nothing when nobody failed."""
    rank = first_failed_rank(run)
    if rank is None:
        return []
    entries = rank.exit_meaning
    meaning = f" ({entries})" if entries and not entries.startswith("exit code") else ""
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


def _waiting(task: Task, waiting: Waiting, now: float) -> Iterator[Text]:
    yield Text(printable(waiting.message or waiting.reason))
    if waiting.queue_place:
        level = priority_name(waiting.effective_priority)
        yield Text(text("why.place", place=waiting.queue_place, group=task.group, priority=level))
    for sentence in start_sentences(waiting.predicted_start, now):
        yield Text(sentence)


def rank_state_name(state: int) -> str:
    """RUNNING for RANK_STATE_RUNNING."""
    return enum_name(RankState, state)


def rank_style(rank: Rank) -> StateStyle:
    """The sign of a rank's state, or of its silent agent."""
    return SILENT if is_silent(rank) else state_style(rank_state_name(rank.state))


def rank_grid(run: Run, tones: Tones) -> Text:
    """One glyph a rank, by tens; it wraps where the page ends."""
    signs = Text()
    for rank in run.ranks:
        detail = rank_style(rank)
        signs.append(detail.glyph, tones[detail.tone])
        signs.append(" " if rank.index % 10 != 9 else "   ")
    return signs


def _rank_legend(run: Run, tones: Tones) -> Text:
    counts: dict[str, int] = {}
    for rank in (rank for rank in run.ranks if not is_silent(rank)):
        counts[rank_state_name(rank.state)] = counts.get(rank_state_name(rank.state), 0) + 1
    line = Text()
    for state, count in counts.items():
        line.append_text(state_label(state, tones)).append(f" {count}   ")
    if silent := sum(map(is_silent, run.ranks)):
        line.append(f"{SILENT.glyph} {text('ranks.silent')}", tones[SILENT.tone]).append(
            f" {silent}"
        )
    return line


def _grid(entries: Facts) -> Table:
    rows = grid(padding=(0, 2))
    for name, value in entries:
        if value and value != "-":
            rows.add_row(Text(text(f"fact.{name}"), "dim"), Text(printable(value)))
    return rows


def facts(task: Task, now: float) -> Facts:
    """Names and values."""
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


def run_state(run: Run) -> str:
    """RUNNING for RUN_STATE_RUNNING."""
    return enum_name(RunState, run.state)


def run_end(run: Run) -> str:
    """Why a run ended: the stop code in words, and the sentence."""
    stop_text = "+".join(stop_code_names(run.stop_code))
    return " · ".join(part for part in (stop_text, printable(run.reason)) if part)


def why(task: Task, answer: ExplainTaskResponse | None, now: float, tones: Tones) -> Group:
    """Why it waits, with numbers; when it may start; what would help; who is ahead; the past. Or why it failed."""
    silent = silent_task(task, now)
    if task.outcome == TASK_OUTCOME_FAILED:
        history = [] if answer is None else list(answer.history)
        reason = Text(printable(task.reason), tones["bad"])
        card = _card(text("head.failure"), reason, *failure(task.run, tones))
        return Group(card, *_list("why.past", history))
    if answer is None or not (answer.waiting.reason or answer.history or silent):
        return Group(Text(text("why.none"), tones["quiet"]))
    cards: list[RenderableType] = []
    if answer.waiting.reason:
        cards.append(_card(text("head.waiting"), *_waiting(task, answer.waiting, now)))
    if silent:
        lines = (Text(f"• {printable(line)}") for line in answer.constraints)
        cards.append(_card(text("head.silent"), Text(silent, tones["bad"]), *lines))
    else:
        entries = [line for line in answer.constraints if line != answer.waiting.message]
        cards += _list("why.constraints", entries)
    cards += _list("why.changes", [flip.message for flip in answer.flips], tones["good"])
    flips = {flip.message for flip in answer.flips}
    helps = [line for line in answer.suggestions if line not in flips]
    cards += _list("why.silent.do" if silent else "why.suggestions", helps)
    if answer.HasField("nodes") and answer.nodes.total:
        cards.append(_card(text("why.nodes"), _nodes(answer, tones)))
    if answer.quotas:
        rows = (Text(_quota(row)) for row in answer.quotas)
        cards.append(_card(text("why.quotas", user=task.user), *rows))
    cards += _list("why.before", [ahead(other) for other in answer.ahead])
    return Group(*cards, *_list("why.past", list(answer.history)))


def _list(key: str, lines: Sequence[str], style: Style | None = None) -> list[RenderableType]:
    if not lines:
        return []
    return [_card(text(key), *(Text(f"• {printable(line)}", style or "") for line in lines))]


_KINDS = (
    ("free", "good"), ("leaving", "busy"), ("takeable", "waits"), ("protected", "held"),
    ("firm", "plain"), ("cordoned", "quiet"), ("not_ready", "bad"),
)  # fmt: skip


def _nodes(answer: ExplainTaskResponse, tones: Tones) -> Table:
    rows = grid(padding=(0, 2))
    for kind, tone in _KINDS:
        count = getattr(answer.nodes, kind)
        if count:
            drawn = Text(bar(count / answer.nodes.total, 20), tones[tone])
            rows.add_row(Text(text(f"nodes.{kind}")), Text(str(count), justify="right"), drawn)
    return rows


def _quota(row: QuotaUse) -> str:
    level = text("quota.all") if row.priority < 0 else priority_name(row.priority)
    numbers = {key: f"{getattr(row, key):.4g}" for key in ("held", "allowed", "after")}
    return text("quota.row", level=level, **numbers)
