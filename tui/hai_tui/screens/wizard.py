"""The screen of the first start, without a stored profile: connects to a server, or starts one on this machine.

A profile is stored after a call has succeeded; the token is never shown or logged.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import Checkbox, Input

from hai.client import profile as profiles
from hai.client.errors import HaiError
from hai.client.profile import Profile
from hai_tui.i18n import text
from hai_tui.widgets.form.ordered_input import OrderedInput
from hai_tui.widgets.plain import Button, Label, plain

if TYPE_CHECKING:
    from hai_tui.base_app import BaseApp


class PlainCheckbox(Checkbox):
    """A checkbox that shows its state by a character. Textual's checkbox shows it only by colour."""

    BUTTON_INNER = property(lambda self: "X" if self.value else " ")


class WizardScreen(Screen[None]):
    """Asks for address and token, and tries them before it stores them."""

    DEFAULT_CSS = """
    WizardScreen { align: center middle; }
    WizardScreen > Vertical { width: 76; max-width: 96%; height: auto; padding: 1 2;
        border: round $primary; background: $surface; }
    WizardScreen Label { width: 1fr; margin-top: 1; }
    WizardScreen Input, WizardScreen Input:focus { border: none; height: 1; background: $panel; padding: 0 1; }
    WizardScreen PlainCheckbox, WizardScreen PlainCheckbox:focus { border: none; padding: 0;
        background: $surface; margin-top: 1; }
    WizardScreen Horizontal { height: auto; margin-top: 1; }
    WizardScreen Button { margin-right: 2; }
    WizardScreen #told { color: $warning; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.quit", show=False),
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
    ]

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = plain(text("wizard.title"))
            yield Label(text("wizard.about"))
            yield Label(text("wizard.server"))
            yield OrderedInput(id="server", placeholder="hai.example.org:7450", compact=True)
            yield Label(text("wizard.token"))
            yield OrderedInput(id="token", password=True, compact=True)
            yield PlainCheckbox(text("wizard.insecure"), id="insecure", compact=True)
            with Horizontal():
                yield Button(text("wizard.connect"), id="connect", variant="primary", compact=True)
                yield Button(text("wizard.up"), id="up", compact=True)
                yield Button(text("wizard.quit"), id="quit", compact=True)
            yield Label("", id="told")
            yield Label(text("wizard.keys"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the token, or connect after the token."""
        if event.input.id == "server":
            self.query_one("#token", Input).focus()
        else:
            self._connect()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        match event.button.id:
            case "connect":
                self._connect()
            case "up":
                self.run_worker(self._start_server(), exclusive=True)
            case _:
                self.app.exit(0)

    def _connect(self) -> None:
        server = self.query_one("#server", Input).value.strip()
        if not server:
            self._show_message(text("wizard.no.server"))
            return
        token = self.query_one("#token", Input).value.strip()
        insecure = self.query_one("#insecure", PlainCheckbox).value
        profile = Profile("default", server, token, "", insecure)
        self.run_worker(self._try(profile), exclusive=True)

    async def _try(self, profile: Profile) -> None:
        self._show_message(text("wizard.trying", server=profile.server))
        try:
            async with cast("BaseApp", self.app).options.connect(profile) as client:
                await client.users.whoami()
            profiles.save(profile)
        except HaiError as error:
            self._show_message(f"{error.message} {error.hint}".strip())
        except OSError as error:
            path = profiles.config_path()
            self._show_message(text("save.cannot", path=path, error=error.strerror))
        else:
            await self._use(profile)

    async def _start_server(self) -> None:
        self._show_message(text("wizard.starting"))
        up = [sys.executable, "-m", "hai_tui.cli.main", "up"]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *up, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        _, output = await process.communicate()
        if process.returncode:
            self._show_message(output.decode(errors="replace").strip())
            return
        await self._use(profiles.load("local"))

    async def _use(self, profile: Profile) -> None:
        await cast("BaseApp", self.app).use(profile)

    def _show_message(self, sentence: str) -> None:
        self.query_one("#told", Label).update(sentence)
