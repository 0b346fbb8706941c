"""`.hfai` is private to each side: no revision contains it, and no push changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai.client.errors import Invalid
from hai_backend.workspaces.storage import directory_scan
from tests.support.workspaces import Pusher, directory, file, removal


def _copied(root: Path, text: str = "id: 1") -> Path:
    """Create private entries as a program does that copies its directory."""
    (root / ".hfai").mkdir(exist_ok=True)
    (root / ".hfai/workspace.yml").write_text(text)
    return root / ".hfai/workspace.yml"


async def test_private_entries_are_in_no_revision_and_no_push_changes_them(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"a": b"1", "d/.hfai/deeper": b"is nothing special"})
    config = _copied(service.files())
    (service.files() / "out").write_text("result")
    assert set(await pusher.tree(since=1)) == {"out"}
    await (await pusher.lease()).send([removal("a"), removal("out")], {})
    await service.client.workspaces.restore("w", 1, token=pusher.token)
    assert config.read_text() == "id: 1"
    assert set(await pusher.tree()) == {"a", "d", "d/.hfai", "d/.hfai/deeper"}


@pytest.mark.parametrize(
    "entry",
    [file(".hfai/workspace.yml", b"1"), directory(".hfai"), removal(".hfai"), file(".hfai", b"")],
)
async def test_a_push_of_private_entries_is_refused(service, entry) -> None:
    pusher = await service.pusher()
    config = _copied(service.files())
    with pytest.raises(Invalid) as refused:
        await pusher.send([entry], {})
    assert [(v.field, v.message) for v in refused.value.violations] == [
        (entry.path, "lies in .hfai, which is private to each side; leave it out")
    ]
    assert config.read_text() == "id: 1"


async def test_private_entries_of_an_older_revision_are_missing_in_the_next(
    service, monkeypatch: pytest.MonkeyPatch
) -> None:
    pusher = await service.pusher()
    await pusher.push({"a": b"1"})
    _copied(service.files())
    await _looked_at_as_before(pusher, monkeypatch)
    found = await pusher.tree(since=2)
    assert {path: entry.kind for path, entry in found.items()} == {
        ".hfai": 0,
        ".hfai/workspace.yml": 0,
    }
    config = _copied(service.files(), "id: another")
    await pusher.lease()
    assert (await service.client.workspaces.restore("w", 2, token=pusher.token)).number == 3
    assert config.read_text() == "id: another"


async def _looked_at_as_before(pusher: Pusher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit private entries as an older server did."""
    with monkeypatch.context() as before:
        before.setattr(directory_scan, "OWN", "")
        assert ".hfai/workspace.yml" in await pusher.tree(since=1)
