"""A bare connection to the server of a workspace, and the question of its revision.

How to reach it was noted by a sync of the whole program (`note`), with everything that it depends on; where any of
that is different now (a variable, the file of profiles), nobody is asked. Tokens are never noted.
"""

from __future__ import annotations

import os

from hai_sync.quick.calling import Line
from hai_sync.quick.surroundings import surroundings
from hai_sync.quick.wire import fields, message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_GET = "/hai.v1.WorkspaceService/GetWorkspace"
_REVISION, _CREATED = 4, 9  # fields of Workspace
_SECONDS = 10.0
_TOKENS = ("HAI_TOKEN", "MARSV2_USER_TOKEN")
_PLAIN = "-"  # in place of a file with authorities


def note(profile: str, server: str, ca: str | None, config: str) -> str:
    """What a later push needs to ask the same server; `ca` as in Call, `config`: the file of profiles."""
    lines = (profile, server, _PLAIN if ca is None else ca, config, surroundings(config))
    return "\n".join(lines)


def connected(facts: Mapping[str, str]) -> Line | None:
    """None: the whole program must connect. Raises OSError."""
    profile, server, ca, config, noted = facts["asking"].split("\n", 4)
    if noted != surroundings(config):
        return None
    return Line(server, _token(profile, config), None if ca == _PLAIN else ca, _SECONDS)


def ask(line: Line, name: str) -> None:
    """Which revision a workspace has; `told` hears the answer."""
    line.call(_GET, [message((1, name))])


def told(line: Line, facts: Mapping[str, str]) -> bool:
    """Whether the workspace is the one that we know, at the revision that we know. Raises OSError."""
    answers = line.answers()
    if len(answers) != 1:
        return False
    found = dict(fields(answers[0]))
    revision, created = found.get(_REVISION, 0), found.get(_CREATED, b"")
    return str(revision) == facts["revision"] and created == bytes.fromhex(facts["made"])


def _token(profile: str, config: str) -> str:
    """As the whole program finds it: a variable, else the profile's."""
    token = next((value for name in _TOKENS if (value := os.environ.get(name))), "").strip()
    if token or not profile:
        return token
    import tomllib

    with open(config, "rb") as file:
        return str(tomllib.load(file)["profiles"][profile].get("token", ""))
