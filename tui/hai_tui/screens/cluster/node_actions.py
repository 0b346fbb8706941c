"""Actions of operators on nodes, for every page that shows a node: cordon, uncordon, drain, label."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from hai.v1.node_pb2 import Node
from hai_tui.actions import Action, Handler
from hai_tui.i18n import text
from hai_tui.screens.page import Page
from hai_tui.views.node_labels import labels_text, parse_edited_labels
from hai_tui.widgets.dialogs.prompt import Question


class NodeActionsPage(Page):
    """A page whose actions apply to one node."""

    @property
    def node(self) -> Node | None:
        """Return the node to which the actions apply."""
        raise NotImplementedError

    def node_changed(self, node: Node) -> None:
        """Hook: the server has answered an action with the new state of the node."""

    def node_actions(self) -> Sequence[Action]:
        return (
            _node_action("x", "cordon", self._ask_cordon, self._why_no_cordon),
            _node_action("u", "uncordon", self._uncordon, self._why_no_uncordon),
            _node_action("D", "drain", self._ask_drain, self._why_no_node),
            _node_action("L", "label", self._ask_labels, self._why_no_node),
        )

    def _why_no_node(self) -> str:
        return "" if self.node is not None else text("refused.nothing")

    def _why_no_cordon(self) -> str:
        if self.node is not None and self.node.cordoned:
            return text("node.is_cordoned", name=self.node.name)
        return self._why_no_node()

    def _why_no_uncordon(self) -> str:
        if self.node is not None and not self.node.cordoned:
            return text("node.not_cordoned", name=self.node.name)
        return self._why_no_node()

    def _ask_cordon(self) -> None:
        self._ask_reason("cordon", self._cordon)

    def _ask_drain(self) -> None:
        self._ask_reason("drain", self._drain)

    def _ask_reason(self, verb: str, action: Callable[[Node, str], Awaitable[None]]) -> None:
        node = self.node
        if node is not None:
            label = text(f"node.ask.{verb}", name=node.name)
            self.ask_line(Question(label, lambda reason: self.start(action(node, reason))))

    def _ask_labels(self) -> None:
        node = self.node
        if node is not None:
            self.ask_line(
                Question(
                    text("node.ask.label", name=node.name),
                    lambda line: self.start(self._label(node, line)),
                    value=labels_text(node),
                    placeholder=text("field.labels.hint"),
                )
            )

    async def _label(self, node: Node, line: str) -> None:
        patch = parse_edited_labels(node, line)
        if patch.labels or patch.remove:
            updated = await self.call(
                lambda client: client.nodes.label(node.name, patch.labels, remove=patch.remove)
            )
            self._report(updated, "labelled", labels=labels_text(updated) or "-")

    async def _cordon(self, node: Node, reason: str) -> None:
        updated = await self.call(lambda client: client.nodes.cordon(node.name, reason))
        self._report(updated, "cordoned")

    async def _uncordon(self) -> None:
        node = self.node
        if node is not None:
            updated = await self.call(lambda client: client.nodes.uncordon(node.name))
            self._report(updated, "uncordoned")

    def _drain(self, node: Node, reason: str) -> Awaitable[None]:
        tenants = ", ".join(f"{t.task_id} {t.task_name} ({t.user})" for t in node.tenants)
        key = "node.drain.who" if tenants else "node.drain.nobody"
        confirmed = self.confirm(text(key, name=node.name, who=tenants))
        return self._drain_if(confirmed, node, reason)

    async def _drain_if(self, confirmed: Awaitable[bool], node: Node, reason: str) -> None:
        if await confirmed:
            updated = await self.call(lambda client: client.nodes.drain(node.name, reason))
            self._report(updated, "drained")

    def _report(self, node: Node, result: str, **facts: str) -> None:
        self.hai.say(f"{node.name}: {text(f'done.{result}', **facts)}")
        self.node_changed(node)


def _node_action(key: str, name: str, handler: Handler, why_not: Callable[[], str]) -> Action:
    text_id = f"node.do.{name}"
    return Action(key, name, text_id, handler, "manage_nodes", True, why_not=why_not)
