"""Actions on one or several tasks: stop, suspend, resume, priority, order, tags, stars; with undo.

Pages that show tasks derive from the class here; `chosen_ids` returns the tasks to which an action applies.
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
_TYPE_COUNT_FROM = 20
"""To stop this many tasks or more, the user must type their number."""
_MAX_NAMES = 5
_NAME_CELLS = 32
_FINISHED = 4  # TASK_STATE_FINISHED; protobuf is not loaded before the first paint
_NEED_UNFINISHED = ("stop", "suspend", "resume", "priority", "up", "down", "first")
"""Actions on tasks that have not ended."""


class TaskActionsPage(Page):
    """A page with actions on tasks."""

    def chosen_ids(self) -> list[int]:
        """Return the ids of the tasks to which an action applies."""
        raise NotImplementedError

    def chosen_tasks(self) -> list[Task]:
        """Return the tasks to which an action applies, as far as they are loaded."""
        model = self.hai.session.tasks
        found = [model.get(id) for id in self.chosen_ids()] if model else []
        return [task for task in found if task is not None]

    def chosen_tasks_with_spec(self) -> list[Task]:
        """Return the same tasks, with their specs if the page has loaded them."""
        return self.chosen_tasks()

    def task_actions(self) -> list[Action]:
        """Return the actions that change tasks."""
        return [
            self._task_action("ctrl+d", "stop", self._ask_stop),
            self._task_action("u", "suspend", self._ask_suspend),
            self._task_action("r", "resume", self._resume),
            self._task_action("p", "priority", self._ask_priority),
            self._task_action("t", "tag", self._ask_tags, in_footer=False),
            self._task_action("*", "star", self._toggle_star, in_footer=False),
            self._task_action("K", "up", self._move_up, in_footer=False),
            self._task_action("J", "down", self._move_down, in_footer=False),
            self._task_action("F", "first", self._move_first, in_footer=False),
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
            why_not=lambda: self._why_not(name),
        )

    def _why_not(self, name: str) -> str:
        caller, tasks = self.hai.caller, self.chosen_tasks()
        if not tasks:
            return text("none.chosen")
        if name in _NEED_UNFINISHED and all(task.state == _FINISHED for task in tasks):
            return text("refused.ended", action=text(f"action.{name}"))
        others = [task.user for task in tasks if task.user != caller.name]
        if not others or caller.has("manage_tasks"):
            return ""
        facts = {"owner": others[0], "user": caller.name, "role": caller.role.lower()}
        return text("refused.others", action=text(f"action.{name}"), **facts)

    def dependency_actions(self) -> list[Action]:
        """Return the actions that open the tasks before and after the chosen ones."""
        return [
            Action("<", "before", "action.before", self._go_upstream, in_footer=False),
            Action(">", "behind", "action.behind", self._go_downstream, in_footer=False),
        ]

    def _go_upstream(self) -> None:
        ids = {id for task in self.chosen_tasks_with_spec() for id in upstream(task)}
        self._open_tasks(sorted(ids), "chain.first")

    def _go_downstream(self) -> None:
        self._open_tasks(self._dependents(self.chosen_tasks()), "chain.last")

    def _open_tasks(self, ids: Sequence[int], none_text: str) -> None:
        if not ids:
            self.hai.say(text(none_text), warning=True)
        elif len(ids) == 1:
            self.hai.goto(f"task {ids[0]}")
        else:
            self.hai.goto(f"tasks id:{','.join(map(str, ids))}")

    def _dependents(self, tasks: Sequence[Task]) -> list[int]:
        model = self.hai.session.tasks
        return downstream(tasks, model.tasks.values()) if model else []

    def describe(self, tasks: Sequence[Task]) -> str:
        """Return the ids and names of tasks for a question; of many tasks only the first few."""
        names = [fit(task.name, _NAME_CELLS).rstrip() for task in tasks[:_MAX_NAMES]]
        if len(tasks) == 1:
            return text("what.one", id=tasks[0].id, name=names[0])
        named = ", ".join(f"{t.id} {n}" for t, n in zip(tasks, names, strict=False))
        more = " …" if len(tasks) > _MAX_NAMES else ""
        return text("what.many", count=len(tasks), names=named + more)

    async def apply(self, change: Change) -> None:
        """Apply a change to each task, show the results, and store how to undo it."""
        outcomes = await self._run(change.operations)
        succeeded = {each.id for each in outcomes if each.task is not None}
        if change.undo is not None and succeeded:
            self.hai.push_undo(change.undo, succeeded)
        self._report(change.label, outcomes, change.message)

    async def _run(self, operations: Operations, **options: int) -> list[Outcome]:
        outcomes = await commands.run_on_each(
            await self.hai.session.client(), operations, **options
        )
        self.hai.session.merge([each.task for each in outcomes if each.task is not None])
        return outcomes

    def _report(self, label: str, outcomes: Sequence[Outcome], message: ResultMessage) -> None:
        failed = [each for each in outcomes if each.error is not None]
        if len(outcomes) == 1 and failed:
            assert isinstance(failed[0].error, HaiError)
            self.hai.fail(failed[0].error)
        elif len(outcomes) == 1:
            self.hai.say(_result_text(label, outcomes[0].task, message))
        elif not failed:
            self.hai.say(text("done.many", label=label, count=len(outcomes)))
        else:
            facts = {"label": label, "good": len(outcomes) - len(failed), "bad": len(failed)}
            self.hai.push_screen(ResultsDialog(text("results.title", **facts), _results(outcomes)))

    def choose(self, title: str, choices: Sequence[Choice], about: str = "") -> Awaitable[str]:
        return self.ask(ChoiceDialog(title, choices, about))

    # Each action reads the chosen tasks and opens its dialog at once, because further keys may be typed already.

    def _ask_stop(self) -> Awaitable[None]:
        tasks = self.chosen_tasks()
        choices = [Choice(k, k[0], text(f"stop.{k}")) for k in ("plain", "succeeded", "failed")]
        question = text("stop.ask", what=self.describe(tasks)) + self._dependents_note(tasks)
        answer = self.choose(text("action.stop"), choices, question)
        return self._stop(tasks, question, answer)

    def _dependents_note(self, tasks: Sequence[Task]) -> str:
        """Return a note about tasks that wait for these; they may be canceled."""
        model, ids = self.hai.session.tasks, self._dependents(tasks)
        if not model or not ids:
            return ""
        return f" {text('stop.behind', what=describe_tasks(ids, model.tasks))}"

    async def _stop(self, tasks: Sequence[Task], question: str, answer: Awaitable[str]) -> None:
        outcome, are_many = await answer, len(tasks) >= _TYPE_COUNT_FROM
        if outcome and (not are_many or await self.confirm(question, str(len(tasks)))):
            await self.apply(commands.stop(tasks, outcome))

    def _ask_suspend(self) -> Awaitable[None]:
        tasks = self.chosen_tasks()
        kinds = (("turn", "t"), ("hold", "h"), ("10m", "1"), ("2h", "2"))
        choices = [Choice(kind, key, text(f"suspend.{kind}")) for kind, key in kinds]
        answer = self.choose(text("suspend.how", what=self.describe(tasks)), choices)
        return self._suspend(tasks, answer)

    async def _suspend(self, tasks: Sequence[Task], answer: Awaitable[str]) -> None:
        if kind := await answer:
            delay = _DELAYS.get(kind, 0.0)
            await self.apply(commands.suspend(tasks, hold=kind == "hold", delay=delay))

    def _resume(self) -> Awaitable[None]:
        return self.apply(commands.resume(self.chosen_tasks()))

    def _ask_priority(self) -> Awaitable[None]:
        tasks = self.chosen_tasks()
        choices = [
            Choice(str(number), key, text("priority.auto") if number < 0 else f"{name} {number}")
            for key, (name, number) in zip("123456780", PRIORITIES.items(), strict=True)
        ]
        answer = self.choose(text("priority.how", what=self.describe(tasks)), choices)
        return self._set_priority(tasks, answer)

    async def _set_priority(self, tasks: Sequence[Task], answer: Awaitable[str]) -> None:
        if priority := await answer:
            await self.apply(commands.set_priority(tasks, int(priority)))

    def _ask_tags(self) -> None:
        tasks = self.chosen_tasks()
        model = self.hai.session.tasks
        existing_tags = (
            sorted({tag for task in model.tasks.values() for tag in task.tags}) if model else []
        )
        label = text("tag.label", what=self.describe(tasks))
        current = " ".join(tasks[0].tags) if len(tasks) == 1 else ""
        set_tags = partial(self._set_tags, tasks)
        self.ask_line(Question(label, set_tags, placeholder=current, words=existing_tags))

    def _set_tags(self, tasks: Sequence[Task], line: str) -> None:
        labels = line.replace(",", " ").split()
        remove = [word[1:] for word in labels if word.startswith("-") and len(word) > 1]
        add = [word.removeprefix("+") for word in labels if not word.startswith("-")]
        if add or remove:
            self.start(self.apply(commands.change_tags(tasks, add, remove)))

    def _toggle_star(self) -> Awaitable[None]:
        return self.apply(commands.toggle_star(self.chosen_tasks()))

    def _queue_of_owner(self, task: Task) -> list[int]:
        """Return the ids of the owner's waiting tasks of the same group and priority, in order."""
        model = self.hai.session.tasks
        assert model is not None
        waiting = (
            t
            for t in model.tasks.values()
            if (t.user, t.group, t.priority) == (task.user, task.group, task.priority)
            and model.waiting(t).queue_place
        )
        return [t.id for t in sorted(waiting, key=lambda t: (model.waiting(t).queue_place, t.id))]

    def _move_up(self) -> Awaitable[None]:
        return self._move(self.chosen_tasks()[0], -1)

    def _move_down(self) -> Awaitable[None]:
        return self._move(self.chosen_tasks()[0], 1)

    def _move_first(self) -> Awaitable[None]:
        return self._move(self.chosen_tasks()[0], None)

    async def _move(self, task: Task, step: int | None) -> None:
        order = self._queue_of_owner(task)
        if task.id not in order:
            self.hai.say(text("move.none", id=task.id), warning=True)
            return
        position = order.index(task.id)
        target = 0 if step is None else position + step
        if not 0 <= target < len(order) or target == position:
            self.hai.say(text("move.edge", id=task.id), warning=True)
            return
        await self.apply(commands.move(order, position, target))
        self.hai.refresh_queue()

    async def _undo(self) -> None:
        undo = self.hai.pop_undo()
        if undo is None:
            self.hai.say(text("undo.none"), warning=True)
            return
        outcomes = await self._run(undo.operations, at_once=1)  # the undo of a move has an order
        self._report(text("undo.label", label=undo.label), outcomes, undo.message)
        self.hai.refresh_queue()


def _result_text(label: str, task: Task | None, message: ResultMessage) -> str:
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
