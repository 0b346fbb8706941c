"""The table of pages: one line each. A page's module is imported when it is first opened."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from hai_tui.i18n import text


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page: its name after `:`, where its class lives, the digit that opens it, the words that it takes."""

    name: str
    home: str  # module:Class, below hai_tui.screens
    key: str = ""
    words: str = ""  # what must follow the name, such as TASK; in brackets: may follow
    example: str = ""

    @property
    def title(self) -> str:
        """Its name as a heading; the text page.NAME."""
        return text(f"page.{self.name}")

    @property
    def about(self) -> str:
        """One line for help and palette; the text page.NAME.about."""
        return text(f"page.{self.name}.about")

    @property
    def needs_words(self) -> int:
        """How many words must follow its name."""
        return sum(not word.startswith("[") for word in self.words.split())


PAGES: tuple[PageEntry, ...] = (
    PageEntry("tasks", "tasks.tasks_page:TasksPage", "1"),
    PageEntry("task", "task.task_page:TaskPage", words="TASK", example="12"),
    PageEntry("diff", "tasks.diff_page:DiffPage", words="TASK TASK", example="12 13"),
    PageEntry("logs", "logs.logs_page:LogsPage", words="TASK [RANKS] [WORDS]", example="12 0-3"),
    PageEntry("cluster", "cluster.cluster_page:ClusterPage", "2", words="[NODE]"),
    PageEntry("node", "cluster.node_page:NodePage", words="NODE", example="node1"),
    PageEntry("usage", "cluster.usage_page:UsagePage", "6", words="[GROUP]"),
    PageEntry("nodes", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("queue", "resource:ResourcePage", "3", words="[WORDS]"),
    PageEntry("submit", "submit.submit_page:SubmitPage", "4", words="[TASK]"),
    PageEntry("containers", "resource:ResourcePage", "5", words="[WORDS]"),
    PageEntry("services", "services:ServicesPage", words="TASK", example="12"),
    PageEntry("quotas", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("environments", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("workspaces", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("images", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("artifacts", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("datasets", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("ports", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("tokens", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("webhooks", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("messages", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("mounts", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("groups", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("users", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("shares", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("rights", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("rules", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("registries", "resource:ResourcePage", words="[WORDS]"),
    PageEntry("audit", "resource:ResourcePage", words="[WORDS]"),
)
"""Every page. Texts: page.NAME (title) and page.NAME.about in hai_tui.i18n."""


class NoSuchPage(Exception):
    """The words after `:` open no page; the message says why, and what was perhaps meant."""


def find(line: str) -> tuple[PageEntry, tuple[str, ...]]:
    """The page and its words that a line such as `logs 12` means. Raises NoSuchPage."""
    name, *words = line.split() or [""]
    entry = next((page for page in PAGES if page.name == name.lower()), None) or _begins(name)
    if entry is None:
        raise NoSuchPage(text("goto.unknown", name=name, near=_near(name)))
    if len(words) < entry.needs_words:
        facts = {"name": entry.name, "words": entry.words, "example": entry.example}
        raise NoSuchPage(text("goto.words", **facts))
    return entry, tuple(words)


def _begins(name: str) -> PageEntry | None:
    found = [page for page in PAGES if name and page.name.startswith(name.lower())]
    return found[0] if len(found) == 1 else None


def _near(name: str) -> str:
    names = [page.name for page in PAGES]
    if near := get_close_matches(name.lower(), names, n=1, cutoff=0.5):
        return text("goto.near", name=near[0])
    return f"; {', '.join(names)}"
