"""Actions on one or several tasks: stop, suspend, resume, priority, order, tags, stars; with undo.

Pages that show tasks derive from it; `chosen_ids` says which tasks an action is for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hai.client.errors import HaiError
from hai.task.levels import PRIORITIES
from hai_tui.actions import Action
from hai_tui.formatting.cells import fit
from hai_tui.i18n import text
from hai_tui.screens.page import Page
from hai_tui.tasks import commands
from hai_tui.tasks.descriptions import describe_tasks, downstream, upstream
from hai_tui.widgets.dialogs.choice import Choice, ChoiceDialog
from hai_tui.widgets.dialogs.prompt import Question
from hai_tui.widgets.dialogs.results import Result, ResultsDialog

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task
    from hai_tui.tasks.commands import Change, Operations, Outcome, ResultMessage

_DELAYS = {"10m": 600.0, "2h": 7200.0}
_TYPED_FROM = 20
"""So many tasks are only stopped when the number is typed."""
_NAMED = 5
_NAME_CELLS = 32
_FINISHED = 4  # TASK_STATE_FINISHED, without loading protobuf before the first paint
_UNFINISHED = ("stop", "suspend", "resume", "priority", "up", "down", "first")
"""What can only be done to tasks that have not ended."""


class TaskActionsPage(Page):
    """A page on which tasks are chosen."""

    def chosen_ids(self) -> list[int]:
        """The tasks that an action is for."""
        raise NotImplementedError

    def chosen_tasks(self) -> list[Task]:
        """Those that are known."""
        model = self.hai.session.tasks
        found = [model.get(id) for id in self.chosen_ids()] if model else []
        return [task for task in found if task is not None]

    def with_spec(self) -> list[Task]:
        """The same, with what was submitted where a page knows it."""
        return self.chosen_tasks()

    def task_actions(self) -> list[Action]:
        """The actions, for both pages."""
        return [
            self._task_action("ctrl+d", "stop", self._stop),
            self._task_action("u", "suspend", self._suspend),
            self._task_action("r", "resume", self._resume),
            self._task_action("p", "priority", self._priority),
            self._task_action("t", "tag", self._tag, in_footer=False),
            self._task_action("*", "star", self._star, in_footer=False),
            self._task_action("K", "up", self._up, in_footer=False),
            self._task_action("J", "down", self._down, in_footer=False),
            self._task_action("F", "first", self._first, in_footer=False),
            Action("z", "undo", "action.undo", self._undo, writes=True, in_footer=False),
        ]

    def _task_action(
        self, key: str, name: str, handler: object, *, in_footer: bool = True
    ) -> Action:
        return Action(
            key,
            name,
            f"action.{name}",
            handler,  # type: ignore[arg-type]
            writes=True,
            in_footer=in_footer,
            why_not=lambda: self._not_mine(name),
        )

    def _not_mine(self, name: str) -> str:
        caller, tasks = self.hai.caller, self.chosen_tasks()
        if not tasks:
            return text("none.chosen")
        if name in _UNFINISHED and all(task.state == _FINISHED for task in tasks):
            return text("refused.ended", action=text(f"action.{name}"))
        others = [task.user for task in tasks if task.user != caller.name]
        if not others or caller.has("manage_tasks"):
            return ""
        facts = {"owner": others[0], "user": caller.name, "role": caller.role.lower()}
        return text("refused.others", action=text(f"action.{name}"), **facts)

    def dependency_actions(self) -> list[Action]:
        """Keys that lead from task to task."""
        return [
            Action("<", "before", "action.before", self._go_upstream, in_footer=False),
            Action(">", "behind", "action.behind", self._go_downstream, in_footer=False),
        ]

    def _go_upstream(self) -> None:
        ids = {id for task in self.with_spec() for id in upstream(task)}
        self._open_tasks(sorted(ids), "chain.first")

    def _go_downstream(self) -> None:
        self._open_tasks(self._dependents(self.chosen_tasks()), "chain.last")

    def _open_tasks(self, ids: Sequence[int], none: str) -> None:
        if not ids:
            self.hai.say(text(none), warning=True)
        elif len(ids) == 1:
            self.hai.goto(f"task {ids[0]}")
        else:
            self.hai.goto(f"tasks id:{','.join(map(str, ids))}")

    def _dependents(self, tasks: Sequence[Task]) -> list[int]:
        model = self.hai.session.tasks
        return downstream(tasks, model.tasks.values()) if model else []

    def describe(self, tasks: Sequence[Task]) -> str:
        """How tasks are called in a question: by id and the beginning of the name, the first few of many."""
        names = [fit(task.name, _NAME_CELLS).rstrip() for task in tasks[:_NAMED]]
        if len(tasks) == 1:
            return text("what.one", id=tasks[0].id, name=names[0])
        named = ", ".join(f"{t.id} {n}" for t, n in zip(tasks, names, strict=False))
        more = " …" if len(tasks) > _NAMED else ""
        return text("what.many", count=len(tasks), names=named + more)

    async def do(self, change: Change) -> None:
        """Do it to each, show what became of it, remember how to take it back."""
        outcomes = await self._each(change.operations)
        good = {each.id for each in outcomes if each.task is not None}
        if change.undo is not None and good:
            self.hai.push_undo(change.undo, good)
        self._report(change.label, outcomes, change.message)

    async def _each(self, operations: Operations, **how: int) -> list[Outcome]:
        outcomes = await commands.run_on_each(await self.hai.session.client(), operations, **how)
        self.hai.session.merge([each.task for each in outcomes if each.task is not None])
        return outcomes

    def _report(self, label: str, outcomes: Sequence[Outcome], message: ResultMessage) -> None:
        bad = [each for each in outcomes if each.error is not None]
        if len(outcomes) == 1 and bad:
            assert isinstance(bad[0].error, HaiError)
            self.hai.fail(bad[0].error)
        elif len(outcomes) == 1:
            self.hai.say(_one(label, outcomes[0].task, message))
        elif not bad:
            self.hai.say(text("done.many", label=label, count=len(outcomes)))
        else:
            facts = {"label": label, "good": len(outcomes) - len(bad), "bad": len(bad)}
            self.hai.push_screen(ResultsDialog(text("results.title", **facts), _results(outcomes)))

    def choose(self, title: str, choices: Sequence[Choice], about: str = "") -> Awaitable[str]:
        """Ask for one of a few."""
        return self.ask(ChoiceDialog(title, choices, about))

    # Which tasks are meant is read, and what is asked lies there, at once: keys are typed before the rest is done.

    def _stop(self) -> Awaitable[None]:
        tasks = self.chosen_tasks()
        choices = [Choice(k, k[0], text(f"stop.{k}")) for k in ("plain", "succeeded", "failed")]
        question = text("stop.ask", what=self.describe(tasks)) + self._dependents_note(tasks)
        answer = self.choose(text("action.stop"), choices, question)
        return self._stop_these(tasks, question, answer)

    def _dependents_note(self, tasks: Sequence[Task]) -> str:
        """Who stops what others wait for should know; they may be canceled."""
        model, ids = self.hai.session.tasks, self._dependents(tasks)
        return (
            f" {text('stop.behind', what=describe_tasks(ids, model.tasks))}"
            if model and ids
            else ""
        )

    async def _stop_these(
        self, tasks: Sequence[Task], question: str, answer: Awaitable[str]
    ) -> None:
        how, many = await answer, len(tasks) >= _TYPED_FROM
        if how and (not many or await self.confirm(question, str(len(tasks)))):
            await self.do(commands.stop(tasks, how))

    def _suspend(self) -> Awaitable[None]:
        tasks = self.chosen_tasks()
        kinds = (("turn", "t"), ("hold", "h"), ("10m", "1"), ("2h", "2"))
        choices = [Choice(kind, key, text(f"suspend.{kind}")) for kind, key in kinds]
        answer = self.choose(text("suspend.how", what=self.describe(tasks)), choices)
        return self._suspend_these(tasks, answer)

    async def _suspend_these(self, tasks: Sequence[Task], answer: Awaitable[str]) -> None:
        if how := await answer:
            delay = _DELAYS.get(how, 0.0)
            await self.do(commands.suspend(tasks, hold=how == "hold", delay=delay))

    def _resume(self) -> Awaitable[None]:
        return self.do(commands.resume(self.chosen_tasks()))

    def _priority(self) -> Awaitable[None]:
        tasks = self.chosen_tasks()
        choices = [
            Choice(str(number), key, text("priority.auto") if number < 0 else f"{name} {number}")
            for key, (name, number) in zip("123456780", PRIORITIES.items(), strict=True)
        ]
        answer = self.choose(text("priority.how", what=self.describe(tasks)), choices)
        return self._priority_of(tasks, answer)

    async def _priority_of(self, tasks: Sequence[Task], answer: Awaitable[str]) -> None:
        if how := await answer:
            await self.do(commands.set_priority(tasks, int(how)))

    def _tag(self) -> None:
        tasks = self.chosen_tasks()
        model = self.hai.session.tasks
        existing_tags = (
            sorted({tag for task in model.tasks.values() for tag in task.tags}) if model else []
        )
        label = text("tag.label", what=self.describe(tasks))
        mine = " ".join(tasks[0].tags) if len(tasks) == 1 else ""
        tagged = partial(self._tagged, tasks)
        self.ask_line(Question(label, tagged, placeholder=mine, words=existing_tags))

    def _tagged(self, tasks: Sequence[Task], line: str) -> None:
        """Those that the line named: the cursor may stand on another one by now."""
        labels = line.replace(",", " ").split()
        remove = [word[1:] for word in labels if word.startswith("-") and len(word) > 1]
        add = [word.removeprefix("+") for word in labels if not word.startswith("-")]
        if add or remove:
            self.start(self.do(commands.change_tags(tasks, add, remove)))

    def _star(self) -> Awaitable[None]:
        return self.do(commands.toggle_star(self.chosen_tasks()))

    def _queue_of_owner(self, task: Task) -> list[int]:
        """Its owner's waiting tasks of the same group and priority, in order."""
        model = self.hai.session.tasks
        assert model is not None
        same = (
            t
            for t in model.tasks.values()
            if (t.user, t.group, t.priority) == (task.user, task.group, task.priority)
            and model.waiting(t).queue_place
        )
        return [t.id for t in sorted(same, key=lambda t: (model.waiting(t).queue_place, t.id))]

    def _up(self) -> Awaitable[None]:
        return self._move(self.chosen_tasks()[0], -1)

    def _down(self) -> Awaitable[None]:
        return self._move(self.chosen_tasks()[0], 1)

    def _first(self) -> Awaitable[None]:
        return self._move(self.chosen_tasks()[0], None)

    async def _move(self, task: Task, step: int | None) -> None:
        order = self._queue_of_owner(task)
        if task.id not in order:
            self.hai.say(text("move.none", id=task.id), warning=True)
            return
        position = order.index(task.id)
        to = 0 if step is None else position + step
        if not 0 <= to < len(order) or to == position:
            self.hai.say(text("move.edge", id=task.id), warning=True)
            return
        await self.do(commands.move(order, position, to))
        self.hai.refresh_queue()

    async def _undo(self) -> None:
        undo = self.hai.pop_undo()
        if undo is None:
            self.hai.say(text("undo.none"), warning=True)
            return
        outcomes = await self._each(undo.operations, at_once=1)  # a move back is several, in order
        self._report(text("undo.label", label=undo.label), outcomes, undo.message)
        self.hai.refresh_queue()


def _one(label: str, task: Task | None, message: ResultMessage) -> str:
    assert task is not None
    return text("done.one", label=label, id=task.id, name=task.name, stands=message(task))


def _results(outcomes: Sequence[Outcome]) -> list[Result]:
    from hai_tui.views.tasks import status

    lines = []
    for each in outcomes:
        if each.task is not None:
            lines.append(Result(f"{each.id} {each.task.name}", True, status(each.task)))
        else:
            hint = f" {each.error.hint}" if each.error and each.error.hint else ""
            lines.append(Result(str(each.id), False, f"{each.error}{hint}"))
    return lines
