"""What a server that does not lead does next: every case."""

from __future__ import annotations

import pytest

from hai_backend.server.leadership.decide import SILENT_SECONDS, Act, Follow, Oust, Seen, Take, step

NOW, ITS, ANOTHER = 1000.0, 22, 33


def seen(holder: int | None, silent: float = 0.0, address: str = "b:1", backend: int = ITS) -> Seen:
    return Seen(7, address, backend, NOW - silent, holder)


@pytest.mark.parametrize(
    ("what", "act"),
    [
        pytest.param(Seen(0, "", 0, 0.0, None), Take(), id="nobody has ever led"),
        pytest.param(seen(None), Take(), id="its session is gone: it need not be silent for long"),
        pytest.param(seen(None, address=""), Take(), id="it has resigned"),
        pytest.param(seen(ITS), Follow("b:1"), id="it leads"),
        pytest.param(seen(ITS, 2.9), Follow("b:1"), id="it is a little late"),
        pytest.param(seen(ITS, -5.0), Follow("b:1"), id="its clock step: renewed in the future"),
        pytest.param(seen(ITS, SILENT_SECONDS), Oust(ITS), id="it is silent"),
        pytest.param(seen(ITS, 9e9, ""), Oust(ITS), id="it has resigned and keeps the lock"),
        pytest.param(seen(ITS, address=""), Follow(""), id="it has resigned and is about to leave"),
        pytest.param(seen(ANOTHER), Follow(""), id="another one has the lock, and waits for the row"),
        pytest.param(seen(ANOTHER, 60.0), Follow(""), id="for long, since a write of the last leader lasts"),
    ],
)  # fmt: skip
def test_what_a_server_that_does_not_lead_does_next(what: Seen, act: Act) -> None:
    assert step(what, NOW) == act
