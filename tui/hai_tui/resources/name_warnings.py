"""Names in a form that are perhaps mistyped: questioned once, for settings may come before what they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hai_tui.cli.name_suggestions import doubt_of_group, doubt_of_user, doubt_of_user_group
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.client import Client

_NAMING = {
    "group": doubt_of_group,
    "user_group": doubt_of_user_group,
    "user": doubt_of_user,
    "holder": doubt_of_user,
}


async def doubts(client: Client, values: Mapping[str, str]) -> dict[str, str]:
    """A sentence for each field that names what is not known."""
    kind = "user_group" if values.get("subject_is_group") == "yes" else "user"
    found = {}
    for field, value in values.items():
        doubt_of = _NAMING.get(kind if field == "subject" else field)
        if doubt_of and value.strip() and (told := await doubt_of(client, value.strip())):
            found[field] = text("form.doubt", doubt=told)
    return found
