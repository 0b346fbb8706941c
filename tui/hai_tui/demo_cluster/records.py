"""Records of the users of the demo cluster beside their tasks: images, tokens, messages, rights, data.

They are created through the client, so that `hai tui --demo` and a real server in a test have the same records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from hai.client.client import Client
from hai.v1.artifact_pb2 import Artifact
from hai.v1.dataset_pb2 import (
    DATASET_VISIBILITY_GROUP,
    DATASET_VISIBILITY_PRIVATE,
    DATASET_VISIBILITY_PUBLIC,
    Dataset,
)
from hai.v1.image_pb2 import Image, Registry
from hai.v1.message_service_pb2 import Message
from hai.v1.storage_pb2 import (
    MOUNT_KIND_CSI,
    MOUNT_KIND_HOST_PATH,
    MOUNT_KIND_NFS,
    MOUNT_KIND_TMPFS,
    MountRule,
)
from hai.v1.user_pb2 import (
    ROLE_ADMIN,
    ROLE_OPERATOR,
    ROLE_USER,
    TOKEN_SCOPE_ALL,
    TOKEN_SCOPE_READ,
    TOKEN_SCOPE_SUBMIT,
    Grant,
    Share,
    User,
)
from hai.v1.webhook_service_pb2 import Webhook

Expiring = TypeVar("Expiring", Grant, Message)
ClientFor = Callable[[str], Client]
"""Returns the client of a user."""

_DAY = 86_400.0
_GIB = 1 << 30

PEOPLE = (
    User(name="alice", role=ROLE_ADMIN, groups=["lab"], active=True),
    User(name="bob", role=ROLE_USER, groups=["lab", "vision"], active=True),
    User(name="carol", role=ROLE_USER, groups=["lab", "nlp"], active=True),
    User(name="dave", role=ROLE_OPERATOR, groups=["lab"], active=True),
    User(name="erin", role=ROLE_USER, groups=["lab", "bio"], active=True),
)


@dataclass(frozen=True, slots=True)
class Venv:
    """An environment on the storage."""

    owner: str
    name: str
    packages: int
    size_bytes: int
    parent: str = ""  # as name[owner]
    visibility: str = "private"
    group: str = ""
    description: str = ""
    deprecated: str = ""
    python: str = "3.12.8"
    broken: str = ""  # the server's error message

    @property
    def lock(self) -> str:
        """The text of its lock file."""
        return f"# haienv lock 1\n# of {self.name}\n"


VENVS = (
    Venv("dave", "torch", 61, 6_300_000_000, visibility="public", description="for everybody"),
    Venv("alice", "bert", 14, 212_000_000, "torch[dave]", "group", "lab"),
    Venv("bob", "diffusion", 23, 391_000_000, "torch[dave]", "group", "vision"),
    Venv("dave", "torch-old", 58, 5_900_000_000, visibility="public", deprecated="use torch",
         python="3.10.16"),
    Venv("alice", "try-triton", 3, 88_000_000, "nightly[carol]",
         broken=f"its parent nightly[carol] is gone: layer {'5' * 24}"),
)  # fmt: skip
RUNS_IN = {"蛋白质折叠-第二阶段": "torch[dave]"}
"""The environment of each task that uses one."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A workspace of alice: number and size of its files, and number of its revisions."""

    name: str
    files: int
    bytes_each: int
    revisions: int
    holder: str = ""  # who holds the lease for writing


TREES = (
    Tree("train", 64, 2_500, 3, "laptop: hai workspace sync"),
    Tree("tokenizer", 12, 900, 1),
    Tree("paper", 0, 0, 0),
)

_IMAGES = (
    Image(
        name="pytorch",
        reference="registry.example.org/lab/pytorch:2.8-cuda12.6",
        is_default=True,
        description="what tasks run in that name no image",
    ),
    Image(name="jax", reference="registry.example.org/lab/jax:0.7-cuda12", user_groups=["nlp"]),
    Image(
        name="openfold",
        reference="registry.example.org/bio/openfold:2.1",
        user_groups=["bio"],
        description="with the weights of the second stage",
    ),
    Image(name="nightly", reference="mirror.example.org:5000/pytorch:nightly"),
)
_REGISTRIES = (
    (Registry(prefix="registry.example.org", username="robot-hai", pull_secret="lab-pull"), "s"),
    (Registry(prefix="registry.example.org/bio", username="robot-bio"), "s"),
    (Registry(prefix="mirror.example.org:5000", plain_http=True), None),
)
# Description, scope, days until it expires (0 means never). The last one is revoked.
_TOKENS = (
    ("laptop", TOKEN_SCOPE_ALL, 30),
    ("the job that submits every night", TOKEN_SCOPE_SUBMIT, 365),
    ("the screen in the corridor", TOKEN_SCOPE_READ, 0),
    ("the old laptop", TOKEN_SCOPE_ALL, 30),
)
_MESSAGES = (
    ("your quota of HIGH nodes is 16 now", "alice", False, 0),
    ("please clean up /lab, it is 93 % full", "lab", True, 7),
    ("the cluster rests on Sunday from 8 to 10: new disks", "", False, 3),
)
ALLOWED = "https://hooks.slack.com, https://example.org"  # allowed addresses of webhooks
_WEBHOOKS = (
    Webhook(name="phone", url="https://hooks.slack.com/services/T0/B0/X", format="slack"),
    Webhook(name="sweeps", url="https://example.org/hook", news=["failed"], tag="sweep"),
)
_RULES = (
    MountRule(owners=["public"], mount_path="/data", source="/mnt/data", kind=MOUNT_KIND_HOST_PATH),
    MountRule(
        owners=["public"],
        mount_path="/home/{user.name}",
        source="nfs.example.org:/home/{user.name}",
        kind=MOUNT_KIND_NFS,
        writable=True,
    ),
    MountRule(
        owners=["public"],
        mount_path="/dev/shm",
        source="64Gi",
        kind=MOUNT_KIND_TMPFS,
        writable=True,
    ),
    MountRule(
        owners=["lab"],
        mount_path="/lab",
        source="lustre.csi.example.org",
        kind=MOUNT_KIND_CSI,
        attributes={"volume": "lab"},
        writable=True,
    ),
    MountRule(
        owners=["vision"],
        mount_path="/scratch",
        source="/mnt/nvme",
        kind=MOUNT_KIND_HOST_PATH,
        host_type="DirectoryOrCreate",
        conditions=['task.type != "jupyter"'],
        writable=True,
    ),
)
_ARTIFACTS = (
    ("alice", Artifact(name="bert-base", version="step-90k", type="model",
                       location="/lab/models/bert-base/step-90k", user_group="lab")),
    ("alice", Artifact(name="corpus-tokens", version="2", type="dataset",
                       location="/lab/corpus/tokens-2", user_group="lab",
                       description="what tokenize-corpus makes")),
    ("alice", Artifact(name="notes", type="log", location="/home/alice/notes")),
    ("bob", Artifact(name="resnet50", version="baseline", type="model",
                     location="/lab/models/resnet50", user_group="lab")),
)  # fmt: skip
_DATASETS = (
    ("alice", Dataset(name="corpus", version="2", path="/lab/corpus", size_bytes=812 * _GIB,
                      visibility=DATASET_VISIBILITY_GROUP, user_group="lab")),
    ("alice", Dataset(name="corpus", version="3-draft", path="/home/alice/corpus",
                      visibility=DATASET_VISIBILITY_PRIVATE)),
    ("dave", Dataset(name="imagenet", version="2012", path="/data/imagenet",
                     size_bytes=148 * _GIB, visibility=DATASET_VISIBILITY_PUBLIC)),
    ("dave", Dataset(name="proteins", version="2026-10", path="/data/proteins",
                     size_bytes=2662 * _GIB, visibility=DATASET_VISIBILITY_PUBLIC)),
)  # fmt: skip
_SHARES = (
    Share(user_group="lab", group="train", guaranteed=8, weight=4),
    Share(user_group="nlp", group="train", guaranteed=4, weight=2, limit=12),
    Share(user_group="vision", group="train", weight=1),
    Share(user_group="bio", group="cpu", guaranteed=1, weight=1, limit=2),
)
# Subject, is a group, right, days until it expires (0 means never).
_GRANTS = (
    ("bob", False, "ports:4", 0),
    ("carol", False, "manage_quotas", 14),
    ("erin", False, "workspace_gb:500", 0),
    ("bio", True, "image:registry.example.org/bio/", 0),
    ("vision", True, "custom_service:http:8080", 90),
)


_PORTS = (("notebook-alice", "ssh"), ("bert-base-pretrain", "tensorboard"))
_FIRST_PORT = 30_022


async def furnish(client_for: ClientFor, now: float) -> None:
    """Create the records of all users."""
    await _add_task_records(client_for("alice"))
    await _add_account_records(client_for, now)
    for user, artifact in _ARTIFACTS:
        await client_for(user).artifacts.create(artifact)
    for user, dataset in _DATASETS:
        await client_for(user).datasets.create(dataset)
    for share in _SHARES:
        await client_for("alice").users.set_share(share)


async def _add_task_records(admin: Client) -> None:
    for image in _IMAGES:
        await admin.images.set(image)
    for registry, password in _REGISTRIES:
        await admin.images.set_registry(registry, password)
    for rule in _RULES:
        await admin.storage.create_rule(rule)


async def _add_account_records(client_for: ClientFor, now: float) -> None:
    alice = client_for("alice")
    for description, scope, days in _TOKENS:
        token = await alice.users.create_token(
            description=description, scope=scope, expire_time=_expiry_time(now, days)
        )
    await alice.users.revoke_token(token.id)
    for subject, is_group, right, days in _GRANTS:
        grant = Grant(subject=subject, subject_is_group=is_group, right=right)
        await alice.users.grant(_with_expiry(grant, now, days))
    for webhook in _WEBHOOKS:
        await alice.webhooks.set(webhook)
    for number, (task, service) in enumerate(_PORTS, start=_FIRST_PORT):
        await alice.ports.create(task, service, node_port=number)
    for text, subject, is_group, days in _MESSAGES:
        message = Message(text=text, subject=subject, subject_is_group=is_group)
        await client_for("dave").messages.create(_with_expiry(message, now, days))


def _expiry_time(now: float, days: int) -> datetime | None:
    return datetime.fromtimestamp(now + days * _DAY, UTC) if days else None


def _with_expiry(record: Expiring, now: float, days: int) -> Expiring:
    if days:
        record.expire_time.FromSeconds(int(now + days * _DAY))
    return record
