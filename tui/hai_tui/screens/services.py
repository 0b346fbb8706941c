"""`:services TASK`: what runs beside a program, and how long a container may stay."""

from __future__ import annotations

from functools import cached_property

from hai_tui.resources.containers import Services
from hai_tui.resources.resource_spec import ResourceSpec
from hai_tui.screens.resource import ResourcePage


class ServicesPage(ResourcePage):
    """Opened with a task; words after it are a filter."""

    def __init__(self, task: str, *arguments: str) -> None:
        super().__init__(*arguments)
        self._services = Services(task)

    @cached_property
    def resource(self) -> ResourceSpec:
        """The services of this task."""
        return self._services.resource()

    def title_text(self) -> str:
        """With the task's name or number."""
        return f"{self.entry.title} {self._services.task}"

    def status_note(self) -> str:
        """When the container leaves, if it is one."""
        return self._services.lifetime_text if self.table.ids else ""
