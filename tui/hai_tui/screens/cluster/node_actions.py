"""Actions of operators on nodes, for every page that shows a node: cordon, uncordon, drain, label."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from hai.v1.node_pb2 import Node
from hai_tui.actions import Action, Handler
from hai_tui.i18n import text
from hai_tui.screens.page import Page
from hai_tui.views.node_labels import edited, labels_of
from hai_tui.widgets.dialogs.prompt import Question


class NodeActionsPage(Page):
    """A page with a node under its cursor."""

    @property
    def node(self) -> Node | None:
        """The node that actions are for."""
        raise NotImplementedError

    def node_changed(self, node: Node) -> None:
        """The server has answered with its new state."""

    def node_actions(self) -> Sequence[Action]:
        """Cordon, uncordon, drain, label."""
        return (
            _node_action("x", "cordon", self._ask_cordon, self._why_no_cordon),
            _node_action("u", "uncordon", self._uncordon, self._why_no_uncordon),
            _node_action("D", "drain", self._ask_drain, self._why_no_node),
            _node_action("L", "label", self._ask_labels, self._why_no_node),
        )

    def _why_no_node(self) -> str:
        return "" if self.node is not None else text("refused.nothing")

    def _why_no_cordon(self) -> str:
        node = self.node
        return (
            text("node.is_cordoned", name=node.name)
            if node and node.cordoned
            else self._why_no_node()
        )

    def _why_no_uncordon(self) -> str:
        node = self.node
        return (
            text("node.not_cordoned", name=node.name)
            if node and not node.cordoned
            else self._why_no_node()
        )

    def _ask_cordon(self) -> None:
        self._ask("cordon")

    def _ask_drain(self) -> None:
        self._ask("drain")

    def _ask(self, verb: str) -> None:
        node = self.node
        if node is not None:
            label = text(f"node.ask.{verb}", name=node.name)
            work = self._cordon if verb == "cordon" else self._drain
            self.ask_line(Question(label, lambda why: self.start(work(node, why))))

    def _ask_labels(self) -> None:
        node = self.node
        if node is not None:
            question = text("node.ask.label", name=node.name)
            self.ask_line(
                Question(
                    question,
                    lambda line: self.start(self._label(node, line)),
                    value=labels_of(node),
                    placeholder=text("field.labels.hint"),
                )
            )

    async def _label(self, node: Node, line: str) -> None:
        change = edited(node, line)
        if change.labels or change.remove:
            updated = await self.call(
                lambda client: client.nodes.label(node.name, change.labels, remove=change.remove)
            )
            self._report(updated, "labelled", labels=labels_of(updated) or "-")

    async def _cordon(self, node: Node, why: str) -> None:
        self._report(
            await self.call(lambda client: client.nodes.cordon(node.name, why)), "cordoned"
        )

    async def _uncordon(self) -> None:
        node = self.node
        if node is not None:
            updated = await self.call(lambda client: client.nodes.uncordon(node.name))
            self._report(updated, "uncordoned")

    def _drain(self, node: Node, why: str) -> Awaitable[None]:
        concerned = ", ".join(f"{t.task_id} {t.task_name} ({t.user})" for t in node.tenants)
        question = text(
            "node.drain.who" if concerned else "node.drain.nobody", name=node.name, who=concerned
        )
        return self._drained(self.confirm(question), node, why)

    async def _drained(self, yes: Awaitable[bool], node: Node, why: str) -> None:
        if await yes:
            updated = await self.call(lambda client: client.nodes.drain(node.name, why))
            self._report(updated, "drained")

    def _report(self, node: Node, updated: str, **facts: str) -> None:
        self.hai.say(f"{node.name}: {text(f'done.{updated}', **facts)}")
        self.node_changed(node)


def _node_action(key: str, name: str, handler: Handler, why_not: Callable[[], str]) -> Action:
    text_id = f"node.do.{name}"
    return Action(key, name, text_id, handler, "manage_nodes", True, why_not=why_not)
