"""The table of pages. The module of a page is imported when it is first opened."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from hai_tui.i18n import text


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page: its name after `:`, its class, the digit that opens it, and its arguments."""

    name: str
    class_path: str  # module:Class below hai_tui.screens
    key: str = ""
    arguments: str = ""  # such as TASK; in brackets if optional
    example: str = ""

    @property
    def title(self) -> str:
        """The title; the text page.NAME."""
        return text(f"page.{self.name}")

    @property
    def about(self) -> str:
        """One line for help and palette; the text page.NAME.about."""
        return text(f"page.{self.name}.about")

    @property
    def required_arguments(self) -> int:
        """How many arguments are not optional."""
        return sum(not argument.startswith("[") for argument in self.arguments.split())


def _list_page(name: str, key: str = "") -> PageEntry:
    """Return the page of a list that `hai_tui.resources` describes."""
    return PageEntry(name, "resource:ResourcePage", key, "[WORDS]")


PAGES: tuple[PageEntry, ...] = (
    PageEntry("tasks", "tasks.tasks_page:TasksPage", "1"),
    PageEntry("task", "task.task_page:TaskPage", arguments="TASK", example="12"),
    PageEntry("diff", "tasks.diff_page:DiffPage", arguments="TASK TASK", example="12 13"),
    PageEntry(
        "logs", "logs.logs_page:LogsPage", arguments="TASK [RANKS] [WORDS]", example="12 0-3"
    ),
    PageEntry("cluster", "cluster.cluster_page:ClusterPage", "2", arguments="[NODE]"),
    PageEntry("node", "cluster.node_page:NodePage", arguments="NODE", example="node1"),
    PageEntry("usage", "cluster.usage_page:UsagePage", "6", arguments="[GROUP]"),
    _list_page("nodes"),
    _list_page("queue", "3"),
    PageEntry("submit", "submit.submit_page:SubmitPage", "4", arguments="[TASK]"),
    _list_page("containers", "5"),
    PageEntry("services", "resource:ServicesPage", arguments="TASK", example="12"),
    *map(_list_page, (
        "quotas", "environments", "workspaces", "images", "artifacts", "datasets", "ports",
        "tokens", "webhooks", "messages", "mounts", "groups", "users", "shares", "rights",
        "rules", "registries", "audit",
    )),
)  # fmt: skip
"""All pages. Their texts are page.NAME and page.NAME.about in hai_tui.i18n."""


class PageNotFound(Exception):
    """The line after `:` names no page. The message says why, and suggests a similar one."""


def find_page(line: str) -> tuple[PageEntry, tuple[str, ...]]:
    """Return the page and the arguments that a line such as `logs 12` names. Raise PageNotFound."""
    name, *arguments = line.split() or [""]
    entry = next((page for page in PAGES if page.name == name.lower()), None) or _find_by_prefix(
        name
    )
    if entry is None:
        raise PageNotFound(text("goto.unknown", name=name, near=_suggestion(name)))
    if len(arguments) < entry.required_arguments:
        values = {"name": entry.name, "words": entry.arguments, "example": entry.example}
        raise PageNotFound(text("goto.words", **values))
    return entry, tuple(arguments)


def _find_by_prefix(name: str) -> PageEntry | None:
    matches = [page for page in PAGES if name and page.name.startswith(name.lower())]
    return matches[0] if len(matches) == 1 else None


def _suggestion(name: str) -> str:
    names = [page.name for page in PAGES]
    if near := get_close_matches(name.lower(), names, n=1, cutoff=0.5):
        return text("goto.near", name=near[0])
    return f"; {', '.join(names)}"
