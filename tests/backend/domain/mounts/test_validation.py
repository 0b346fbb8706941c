"""All violations of a row of the mounts table are reported at once, with their columns."""

from __future__ import annotations

from typing import Any

import pytest

from hai_backend.domain.errors import Invalid
from hai_backend.domain.mounts.mount import HostPathType, MountAction, MountKind, MountRow
from hai_backend.domain.mounts.validation import check_row

SOUND: dict[str, dict[str, Any]] = {
    "directory": {"source": "/data", "host_type": HostPathType.DIRECTORY},
    "templates": {"mount_path": "/u/{user.name}", "source": "/data/{user.name}-{task.id}/x"},
    "server": {"source": "nfs.example:/export/{user.name}", "kind": MountKind.NFS},
    "claim": {"source": "data", "kind": MountKind.PVC},
    "claim of a user": {"source": "data-{user.name}", "kind": MountKind.PVC},
    "part of a claim": {"source": "data:{user.name}/x", "kind": MountKind.PVC},
    "config map": {"source": "site:site.ini", "kind": MountKind.CONFIG_MAP},
    "driver": {
        "source": "lustre.csi.example",
        "kind": MountKind.CSI,
        "attributes": {"mountName": "fs-{user.name}", "a.b/c": ""},
    },
    "memory": {"source": "512Mi", "kind": MountKind.TMPFS},
    "shared memory": {"mount_path": "/dev/shm", "source": "8Gi", "kind": MountKind.TMPFS},
    "device": {"mount_path": "/dev/infiniband", "source": "/dev/infiniband"},
    "removal": {"action": MountAction.REMOVE, "mount_path": "/data/*", "source": "/x/{user.name}*"},
    "removal of everything": {"action": MountAction.REMOVE, "mount_path": "*"},
    "conditions": {"source": "/x", "conditions": ("user.uid == 1", "task is not None")},
}


def row(**given: Any) -> MountRow:
    return MountRow(**{"owners": ("public",), "mount_path": "/data", **given})


@pytest.mark.parametrize("given", [pytest.param(g, id=ident) for ident, g in SOUND.items()])
def test_valid_rows_are_accepted(given: dict[str, Any]) -> None:
    check_row(row(**given))


BROKEN: list[tuple[dict[str, Any], str, str]] = [
    ({"owners": ()}, "owners", "must name"),
    ({"owners": ("ada", "a b")}, "owners[1]", "'a b' is no user"),
    ({"mount_code": -1}, "mount_code", "not -1"),
    ({"conditions": ("user.uid == 1",) * 21}, "conditions", "at most 20"),
    ({"conditions": ("user.uid == 1", "user.x == 1")}, "conditions[1]", "column 1: there is no"),
    ({"mount_path": ""}, "mount_path", "column 1: '' must begin with a slash"),
    ({"mount_path": "data"}, "mount_path", "column 1: 'data' must begin with a slash"),
    ({"mount_path": "/"}, "mount_path", "column 2: '' is no name"),
    ({"mount_path": "/a//b"}, "mount_path", "column 4: '' is no name"),
    ({"mount_path": "/a/../b"}, "mount_path", "column 4: '..' is no name"),
    ({"mount_path": "/a/./b"}, "mount_path", "column 4: '.' is no name"),
    ({"mount_path": "/a\0"}, "mount_path", "column 3: a path contains no control"),
    ({"mount_path": "/a:b"}, "mount_path", "column 3: a mount path contains no colon"),
    ({"mount_path": "/{user.name}"}, "mount_path", "column 2: the first directory"),
    ({"mount_path": "/x{user.name}/a"}, "mount_path", "column 3: the first directory"),
    ({"mount_path": "/a/{user.name"}, "mount_path", "column 4: this { is not closed"),
    ({"mount_path": "/a/user.name}"}, "mount_path", "column 13: this } closes nothing"),
    ({"mount_path": "/a/{user}"}, "mount_path", "column 5: there is no 'user'"),
    ({"mount_path": "/a/{user.name.x}"}, "mount_path", "column 5: there is no 'user.name.x'"),
    ({"mount_path": "/a/{user.groups}"}, "mount_path", "column 5: user.groups is a list"),
    ({"mount_path": "/a/{}"}, "mount_path", "column 5: there is no ''"),
    ({"mount_path": "/a/{{user.name}}"}, "mount_path", "column 5: there is no '{user.name'"),
    ({"mount_path": "/hai"}, "mount_path", "the platform's"),
    ({"mount_path": "/hai/agent/x"}, "mount_path", "the platform's"),
    ({"mount_path": "/etc/ssl"}, "mount_path", "the platform's"),
    ({"mount_path": "/proc/{user.name}"}, "mount_path", "the platform's"),
    ({"mount_path": "/dev/shm"}, "mount_path", "the platform's"),
    ({"mount_path": "/dev/"}, "mount_path", "hide what every program needs"),
    ({"mount_path": "/" + "x" * 2000}, "mount_path", "at most 1024"),
    ({"source": "/"}, "source", "column 2: '' is no name"),
    ({"source": "/{user.name}"}, "source", "column 2: the first directory"),
    ({"source": "/a/*/../b"}, "source", "column 6: '..' is no name"),
    ({"source": "nfs.example", "kind": MountKind.NFS}, "source", "column 13: '' must begin"),
    ({"source": "{user.name}:/a", "kind": MountKind.NFS}, "source", "column 1: must be server:"),
    ({"source": "s:/a/../b", "kind": MountKind.NFS}, "source", "column 6: '..' is no name"),
    ({"source": "s:/{user.name}", "kind": MountKind.NFS}, "source", "column 4: the first"),
    ({"source": "A", "kind": MountKind.PVC}, "source", "column 1: 'A' is no name of a Kub"),
    ({"source": "", "kind": MountKind.CONFIG_MAP}, "source", "column 1: '' is no name of a Kub"),
    ({"source": "a:../b", "kind": MountKind.CONFIG_MAP}, "source", "column 3: '..' is no name"),
    ({"source": "a:/b", "kind": MountKind.PVC}, "source", "column 3: '' is no name"),
    ({"source": "a:", "kind": MountKind.PVC}, "source", "column 3: '' is no name"),
    ({"source": "{user.name}", "kind": MountKind.CSI}, "source", "is no CSI driver"),
    ({"source": "8G", "kind": MountKind.TMPFS}, "source", "is no size"),
    ({"source": "{user.uid}Gi", "kind": MountKind.TMPFS}, "source", "is no size"),
    ({"source": "a", "kind": MountKind.PVC, "host_type": HostPathType.FILE}, "host_type", "for hostPath"),
    ({"attributes": {"a": "b"}}, "attributes", "for csi only"),
    ({"source": "d", "kind": MountKind.CSI, "attributes": {"a b": ""}}, "attributes[a b]", "no name"),
    ({"source": "d", "kind": MountKind.CSI, "attributes": {"a": "b\n"}}, "attributes[a]", "column 2"),
    ({"source": "d", "kind": MountKind.CSI, "attributes": {"a": "{x}"}}, "attributes[a]", "column 2"),
    ({"action": MountAction.REMOVE, "mount_path": "/a*b"}, "mount_path", "column 3: a * stands"),
    ({"action": MountAction.REMOVE, "mount_path": "/{x}"}, "mount_path", "column 3: there is no"),
    ({"action": MountAction.REMOVE, "source": "**"}, "source", "column 1: a * stands"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "field", "said"), BROKEN)
def test_invalid_rows_are_reported_with_their_fields(
    given: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(Invalid) as caught:
        check_row(row(**{"source": "/x", **given}))
    (violation,) = [v for v in caught.value.violations if v.field == field]
    assert said in violation.message
    assert caught.value.reason == "BAD_MOUNT"


def test_all_violations_are_reported_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        check_row(row(owners=(), mount_path="a", source="b", conditions=("", "user.x")))
    fields = [violation.field for violation in caught.value.violations]
    assert fields == ["owners", "conditions[0]", "conditions[1]", "mount_path", "source"]
