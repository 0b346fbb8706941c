"""The three themes of the app, and the tones of `hai.client.text.state_style` as Rich styles."""

from __future__ import annotations

from rich.style import Style
from textual.theme import Theme

_DARK = {
    "tone-good": "#7ad97a", "tone-busy": "#e6c04f", "tone-waits": "#8fb6e8", "tone-bad": "#ff7b72",
    "tone-quiet": "#8b949e", "tone-held": "#d2a8ff", "tone-done": "#56d4cf", "tone-plain": "#e6edf3",
}  # fmt: skip
_LIGHT = {
    "tone-good": "#116329", "tone-busy": "#7d4e00", "tone-waits": "#0550ae", "tone-bad": "#b3121d",
    "tone-quiet": "#57606a", "tone-held": "#6639ba", "tone-done": "#0b6b74", "tone-plain": "#1f2328",
}  # fmt: skip
_CONTRAST = {
    "tone-good": "#00ff00", "tone-busy": "#ffff00", "tone-waits": "#00ffff", "tone-bad": "#ff6060",
    "tone-quiet": "#d0d0d0", "tone-held": "#ff80ff", "tone-done": "#00ffff", "tone-plain": "#ffffff",
}  # fmt: skip

THEMES = (
    Theme(
        "hai-dark", primary="#4c8dff", secondary="#8fb6e8", accent="#e6c04f", warning="#e6c04f",
        error="#ff7b72", success="#7ad97a", foreground="#e6edf3", background="#0d1117",
        surface="#151b23", panel="#212b38", dark=True, variables=_DARK,
    ),
    Theme(
        "hai-light", primary="#0550ae", secondary="#3b6ea8", accent="#7d4e00", warning="#7d4e00",
        error="#b3121d", success="#116329", foreground="#1f2328", background="#ffffff",
        surface="#f6f8fa", panel="#dde3ea", dark=False, variables=_LIGHT,
    ),
    Theme(
        "hai-contrast", primary="#ffff00", secondary="#00ffff", accent="#ffff00", warning="#ffff00",
        error="#ff6060", success="#00ff00", foreground="#ffffff", background="#000000",
        surface="#000000", panel="#303030", dark=True, variables=_CONTRAST,
    ),
)  # fmt: skip
"""Dark, light and high contrast; the first is the default."""


TONES = tuple(name.removeprefix("tone-") for name in _DARK)
"""The names of all tones."""


def default_variables() -> dict[str, str]:
    """Return the colours of the tones for themes that do not define them."""
    return dict(_DARK)


def tones(theme: Theme) -> dict[str, Style]:
    """Return the style of each tone in a theme; `bad` is bold, too."""
    styles = _TONE_CACHE.get(theme.name)
    if styles is None:
        colours = {**(_DARK if theme.dark else _LIGHT), **theme.variables}
        styles = {name: Style(color=colours[f"tone-{name}"], bold=name == "bad") for name in TONES}
        _TONE_CACHE[theme.name] = styles
    return styles


_TONE_CACHE: dict[str, dict[str, Style]] = {}
