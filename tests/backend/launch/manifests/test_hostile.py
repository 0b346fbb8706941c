"""No field of a task, name of a user or template of a mount gives access that was not granted.

Each case is one attempt. Either it is refused with the name of the wrong field, or the resulting objects are exactly
equal to those of a harmless task, so they contain nothing of the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import text_format

from hai.v1 import task_spec_pb2 as pb
from hai_backend.api.nodes.group_capacity import GroupCapacity
from hai_backend.api.tasks.validation.fit import SubmitContext
from hai_backend.api.tasks.validation.validate import validate
from hai_backend.domain.accounts.user import Role, User
from hai_backend.domain.errors import Invalid
from hai_backend.domain.mounts.mount import Mount, MountAction, MountKind, MountRow
from hai_backend.domain.mounts.mount_rules import resolve
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.shared_dirs import SharedDirectory
from hai_backend.domain.spec import ProgramSpec, ResourceSpec, ServiceType, TaskSpec
from hai_backend.domain.task import Rank, Run, RunState, Task, TaskState
from hai_backend.launch.manifests.names import USER, Manifest
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest, ServiceRequest, Terms, run_request

NODE = Node("node-0", zone="a", gpus=8, cpus=64, memory_bytes=512 << 30)
CAPACITY = {"default": GroupCapacity("default", False, [NODE])}
SERVICES = ("custom_service:http:*", "custom_service:tcp:*", "custom_service:local:*")
ADA = User("ada", uid=2001, groups=("vision", "root", "docker"))
LONG = "x" * 300

Made = Callable[[RunRequest, ClusterSettings], list[Manifest]]


def task_of(spec: TaskSpec) -> Task:
    run = Run(1, RunState.CREATED, (Rank(0, NODE.name),), 0.0, Priority.NORMAL)
    return Task(12, "ada", spec, TaskState.RUNNING, Priority.NORMAL, 0.0, run=run)


def submitted(text: str) -> Task:
    """Return the task of a submission, after its validation."""
    asked = pb.TaskSpec(version=2, name="t")
    asked.spec.entrypoint = "train.py"
    text_format.Merge(text, asked)
    context = SubmitContext("ada", CAPACITY, lambda right: right in SERVICES)
    return task_of(validate(asked, context))


def named(name: str) -> Task:
    return task_of(TaskSpec(name, ProgramSpec("train.py")))


def requested(task: Task, user: User = ADA, terms: Terms | None = None) -> RunRequest:
    return run_request(task, user, terms or Terms(), {NODE.name: NODE})


@pytest.fixture
def innocent(made: Made, cluster: ClusterSettings) -> list[Manifest]:
    return made(requested(submitted("")), cluster)


def spec_case(ident: str, text: str) -> Any:
    return pytest.param(text, id=ident)


WITHOUT_EFFECT = [
    spec_case("name is a path", 'name: "../../etc"'),
    spec_case("name breaks out of JSON", r'name: "t\", \"privileged\": true, \"x\": \""'),
    spec_case("name breaks out of YAML", 'name: "t: {hostPath: {path: /}}"'),
    spec_case("name is a command", 'name: "`reboot`;reboot;${IFS}"'),
    spec_case("name is of other letters", 'name: "任务 ✓"'),
    spec_case("name is a label", 'name: "hai.dev/rank=7"'),
    spec_case("name is of another run", 'name: "hai-11-1"'),
    spec_case("workspace is of the node", 'spec { workspace: "/etc/kubernetes" }'),
    spec_case("workspace climbs", 'spec { workspace: "../../../root" }'),
    spec_case("workspace is the agent's", 'spec { workspace: "/hai/home" }'),
    spec_case(
        "entrypoint is a shell", 'spec { entrypoint: "/bin/sh" entrypoint_executable: true }'
    ),
    spec_case("parameters are commands", 'spec { parameters: "; reboot" parameters: "$(POD_IP)" }'),
    spec_case("variable of the loader", 'spec { environments { key: "LD_PRELOAD" value: "/x" } }'),
    spec_case("variable of the pod", 'spec { environments { key: "POD_IP" value: "10.0.0.1" } }'),
    spec_case("variable of the node", 'spec { environments { key: "NODE_NAME" value: "n9" } }'),
    spec_case(
        "variable of the cluster",
        'spec { environments { key: "KUBERNETES_SERVICE_HOST" value: "x" } }',
    ),
    spec_case("variable expands", 'spec { environments { key: "A" value: "$(TOKEN)" } }'),
    spec_case("repository is a file", 'spec { git_remote_repo: "file:///etc" }'),
    spec_case("tag is a label", 'options { tags: "hai.dev/user=root" }'),
    spec_case("sidecar", 'options { sidecar: "privileged" }'),
    spec_case("fuse", "options { fffs_enable_fuse: true }"),
    spec_case("every mount set", "options { mount_code: 2147483647 }"),
    spec_case("more than the node", "options { override_node_resource { cpu: 4096 memory: 999 } }"),
    spec_case("shared in group", "options { shared_in_group: true }"),
    spec_case("role", 'roles { name: "root" count: 1 entrypoint: "x.py" }'),
    spec_case("variable of the agent", 'spec { environments { key: "HAI_RUN" value: "9" } }'),
    spec_case("profile climbs", 'options { profile { recorder: "../../x" } }'),
    spec_case("state of a lifetime", "options { whole_life_state: -9223372036854775808 }"),
    spec_case(
        "command of a service",
        'services { name: "w" type: "local" startup_script: "nsenter -t 1 && reboot" }',
    ),
]


@pytest.mark.parametrize("text", WITHOUT_EFFECT)
def test_what_is_accepted_leaves_no_trace(
    text: str, made: Made, cluster: ClusterSettings, innocent: list[Manifest]
) -> None:
    assert made(requested(submitted(text)), cluster) == innocent


def service(text: str) -> str:
    return f"services {{ {text} }}"


def image(text: str) -> str:
    return f'resource {{ image: "{text}" }}'


REFUSED = [
    ("name with a line break", r'name: "t\n  hostPID: true"', "name"),
    ("name with NUL", r'name: "t\000"', "name"),
    ("kind of the platform", 'task_type: "system"', "task_type"),
    ("level above all", "priority: 1000000000", "priority"),
    ("no node", "resource { node_count: 0 }", "resource.node_count"),
    ("nodes beyond counting", "resource { node_count: 2147483647 }", "resource.node_count"),
    ("negative GPUs", "resource { gpu: -1 }", "resource.gpu"),
    ("negative GPUs of a role", 'roles { name: "w" count: 1 gpu: -8 }', "roles[0].gpu"),
    ("negative role", 'roles { name: "w" count: -1 }', "roles[0].count"),
    ("role with a line break", r'roles { name: "w\n" count: 1 }', "roles[0].name"),
    (
        "variable of a role is two",
        'roles { name: "w" count: 1 environments { key: "A=B" value: "" } }',
        "roles[0].environments[A=B]",
    ),
    (
        "override below nothing",
        "options { override_node_resource { memory: -9 } }",
        "options.override_node_resource.memory",
    ),
    ("parameter with NUL", r'spec { parameters: "a\000b" }', "spec.parameters[0]"),
    ("entrypoint with NUL", r'spec { entrypoint: "a\000.py" }', "spec.entrypoint"),
    ("variable is two", 'spec { environments { key: "A=B" value: "" } }', "spec.environments[A=B]"),
    (
        "variable is two lines",
        r'spec { environments { key: "A\nB" value: "" } }',
        "spec.environments[A\nB]",
    ),
    (
        "socket of the agent",
        'spec { environments { key: "HAI_AGENT_SOCKET" value: "/x" } }',
        "spec.environments[HAI_AGENT_SOCKET]",
    ),
    (
        "workspace of the server climbs",
        'spec { workspace: "haiworkspace://../x" }',
        "spec.workspace",
    ),
    ("repository is a command", 'spec { git_remote_repo: "ext::sh -c x" }', "spec.git_remote_repo"),
    (
        "repository is an option",
        'spec { git_remote_repo: "--upload-pack=x" }',
        "spec.git_remote_repo",
    ),
    (
        "revision is an option",
        'spec { git_remote_repo: "https://a/b" git_target_revision: "--output=/etc/x" }',
        "spec.git_target_revision",
    ),
    ("environment is an option", 'options { py_venv: "-u bob x" }', "options.py_venv"),
    ("environment is a command", 'options { py_venv: "$(id)" }', "options.py_venv"),
    ("every node", 'options { assigned_nodes: "*" }', "options.assigned_nodes"),
    ("tag of the platform", 'options { tags: "_shared_in_root" }', "options.tags[0]"),
    ("tag is two lines", r'options { tags: "a\nb" }', "options.tags[0]"),
    ("mount sets below nothing", "options { mount_code: -1 }", "options.mount_code"),
    ("grace of an age", "options { ack_within: 1e9 }", "options.ack_within"),
    ("retries without end", "options { max_retries: 2147483647 }", "options.max_retries"),
    ("life of a container", "options { lifetime: 9 }", "options.lifetime"),
    ("policy is a command", 'policies { on_pod_failed: "reboot" }', "policies.on_pod_failed"),
    ("gang below nothing", "policies { min_available: -3 }", "policies.min_available"),
    (
        "script of a service with NUL",
        r'services { name: "a" type: "local" startup_script: "x\000" }',
        "services[0].startup_script",
    ),
    (
        "another's built-in service",
        service('name: "jupyter" type: "http" port: 80'),
        "services[0].type",
    ),
    ("image of a bare address", image("[::1]/x"), "resource.image"),
    ("environment climbs", 'options { py_venv: "../../x" }', "options.py_venv"),
    ("sidecar climbs", 'options { sidecar: "../x" }', "options.sidecar[0]"),
    ("node by name", 'options { assigned_nodes: "node-0" }', "options.assigned_nodes"),
    ("another group", 'resource { group: "kube-system" }', "resource.group"),
    ("zone climbs", 'resource { group: "default#../a" }', "resource.group"),
    ("group is an expression", 'resource { group: "in (a,b)" }', "resource.group"),
    ("part of a whole node", "resource { cpu: 1 }", "resource.cpu"),
    ("negative memory", "resource { memory: -1 }", "resource.memory"),
    ("signal", 'options { suspend_signal: "SIGSTOP" }', "options.suspend_signal"),
    ("endless grace", "options { save_within: inf }", "options.save_within"),
    ("grace is no number", "options { ack_within: nan }", "options.ack_within"),
    ("role is a path", 'roles { name: "a/b" count: 1 }', "roles[0].name"),
    ("spot without a right to it", "resource { is_spot: true }", "resource.is_spot"),
    ("service climbs", service('name: "../x" type: "tcp" port: 80'), "services[0].name"),
    ("service is a host", service('name: "a.b" type: "http" port: 80'), "services[0].name"),
    ("service in capitals", service('name: "Web" type: "http" port: 80'), "services[0].name"),
    ("service is an option", service('name: "-w" type: "http" port: 80'), "services[0].name"),
    ("service without name", service('type: "http" port: 80'), "services[0].name"),
    ("service is long", service(f'name: "{LONG}" type: "tcp" port: 8'), "services[0].name"),
    ("service is two lines", service(r'name: "a\nb" type: "tcp" port: 8'), "services[0].name"),
    ("service is a regex", service('name: "a.*" type: "http" port: 8'), "services[0].name"),
    ("port 0", service('name: "a" type: "tcp"'), "services[0].port"),
    ("port 65536", service('name: "a" type: "tcp" port: 65536'), "services[0].port"),
    ("port -1", service('name: "a" type: "tcp" port: -1'), "services[0].port"),
    ("port of ssh", service('name: "ssh" port: 10250'), "services[0].name"),
    ("other type", service('name: "a" type: "NodePort" port: 8'), "services[0].type"),
    ("service of rank 1", service('name: "a" type: "tcp" port: 8 rank: 1'), "services[0].rank"),
    (
        "image with password",
        image("bob:secret@registry.example/team/x"),
        "resource.image",
    ),
    ("image with scheme", image("https://registry.example/x"), "resource.image"),
    ("image with blank", image("registry.example/x --privileged"), "resource.image"),
    (
        "image with line break",
        image(r"registry.example/x\nimagePullPolicy: Never"),
        "resource.image",
    ),
    ("image climbs", image("registry.example/../x"), "resource.image"),
    ("image is a path", image("/etc/passwd"), "resource.image"),
    ("image with two slashes", image("registry.example//x"), "resource.image"),
    ("image ends in a slash", image("registry.example/x/"), "resource.image"),
    ("image in capitals", image("registry.example/Team"), "resource.image"),
    ("image with two tags", image("registry.example/x:1:2"), "resource.image"),
    ("image with weak digest", image("registry.example/x@md5:0123"), "resource.image"),
    ("image with short digest", image("registry.example/x@sha256:0123"), "resource.image"),
    ("image is an option", image("--root/x"), "resource.image"),
    ("image is a command", image("$(id)/x"), "resource.image"),
    ("image is a template", image("{{ .Values }}/x"), "resource.image"),
    ("image of a strange port", image("registry.example:0x50/x"), "resource.image"),
    ("image with a query", image("registry.example/x?y=z"), "resource.image"),
    ("image of other letters", image("rеgistry.example/x"), "resource.image"),
    ("image is long", image(f"a/{LONG}"), "resource.image"),
    ("image with NUL", image(r"a/b\000"), "resource.image"),
    ("built-in image with tag", image("busybox:latest"), "resource.image"),
]


@pytest.mark.parametrize(
    ("text", "field"), [pytest.param(text, field, id=ident) for ident, text, field in REFUSED]
)
def test_what_cannot_be_meant_is_refused_at_submission(text: str, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        submitted(text)
    assert field in {violation.field for violation in caught.value.violations}


NAMES = {
    "capitals": "Ada",
    "blank": "ada lovelace",
    "path": "../root",
    "slash": "a/b",
    "nothing": "",
    "dots": "..",
    "line break": "ada\nhostPID: true",
    "other letters": "阿达",
    "half a character": "\udc80",
    "label": "hai.dev/user=root",
    "ends in a hyphen": "ada-",
    "begins with one": "_ada",
    "long": LONG,
    "a hash of somebody": "x--0123456789abcdef",
}


def users_in(value: Any) -> Iterator[str]:
    """Remove and yield the values of all user labels in a manifest."""
    if isinstance(value, dict):
        if USER in value:
            yield value.pop(USER)
        value = value.values()
    if not isinstance(value, str | int | float | None):
        for part in value:
            yield from users_in(part)


@pytest.mark.parametrize("name", [pytest.param(name, id=ident) for ident, name in NAMES.items()])
def test_names_of_users_are_hashed_where_they_are_no_labels(
    name: str, made: Made, cluster: ClusterSettings, innocent: list[Manifest]
) -> None:
    manifests = made(requested(submitted(""), replace(ADA, name=name)), cluster)
    labels = set(users_in(manifests))
    assert set(users_in(innocent)) == {"ada"}
    assert manifests == innocent
    (label,) = labels
    assert label == name or (label.startswith("x--") and len(label) == 19)


def test_no_two_users_have_one_label(made: Made, cluster: ClusterSettings) -> None:
    labels = set()
    for name in NAMES.values():
        manifests = made(requested(submitted(""), replace(ADA, name=name)), cluster)
        labels.add(manifests[0]["metadata"]["labels"][USER])
    assert len(labels) == len(NAMES)


POWERLESS = {
    "admin": replace(ADA, role=Role.ADMIN),
    "operator": replace(ADA, role=Role.OPERATOR),
    "group of the node": replace(ADA, groups=("root", "0", "docker", "gid:0")),
    "other case": replace(ADA, rights=("Privileged", "HOST_NETWORK", "CAP:SYS_ADMIN")),
    "right with an argument": replace(ADA, rights=("privileged:x", "host_pid:1", "capability:A")),
    "right with a blank": replace(ADA, rights=("privileged ", " host_ipc")),
    "group by name": replace(ADA, rights=("gid:root", "gid:", "gid:-5", "gid:٣")),
}


@pytest.mark.parametrize("user", [pytest.param(u, id=ident) for ident, u in POWERLESS.items()])
def test_power_comes_from_rights_only(
    user: User, made: Made, cluster: ClusterSettings, innocent: list[Manifest]
) -> None:
    assert made(requested(submitted(""), user), cluster) == innocent


USERS_REFUSED = {
    "root": (replace(ADA, uid=0), "user.uid"),
    "negative": (replace(ADA, uid=-1), "user.uid"),
    "beyond a uid": (replace(ADA, uid=2**31), "user.uid"),
    "every capability": (replace(ADA, rights=("cap:ALL",)), "user.rights"),
    "no capability": (replace(ADA, rights=("cap:",)), "user.rights"),
    "two capabilities": (replace(ADA, rights=("cap:KILL,SYS_ADMIN",)), "user.rights"),
    "capability by its other name": (replace(ADA, rights=("cap:CAP_SYS_ADMIN",)), "user.rights"),
    "capability that Linux has not": (replace(ADA, rights=("cap:SYS_GOD",)), "user.rights"),
    "capability in other letters": (replace(ADA, rights=("cap:SYS_АDMIN",)), "user.rights"),
    "capability with flags": (replace(ADA, rights=("cap:KILL=eip",)), "user.rights"),
    "group of root": (replace(ADA, rights=("gid:0",)), "user.rights"),
    "beyond a gid": (replace(ADA, rights=("gid:4294967296",)), "user.rights"),
}


@pytest.mark.parametrize(
    ("user", "field"), [pytest.param(*case, id=ident) for ident, case in USERS_REFUSED.items()]
)
def test_users_that_no_cluster_may_have_are_refused(
    user: User, field: str, made: Made, cluster: ClusterSettings
) -> None:
    with pytest.raises(Invalid) as caught:
        made(requested(submitted(""), user), cluster)
    assert field in {violation.field for violation in caught.value.violations}


WORDS = {
    "climbs": "..",
    "climbs far": "../../etc",
    "absolute": "/etc",
    "two directories": "a/b",
    "dot": ".",
    "hidden": ".ssh",
    "blank": " ",
    "colon": "a:b",
    "star": "*",
    "NUL": "a\0b",
    "option": "-o",
    "options of a mount": "a,suid=1",
    "template": "{user.uid}",
    "expansion": "$(POD_IP)",
    "backslash": "a\\..\\b",
    "line break": "a\nb",
    "long": LONG,
}
ROWS = {
    "path of the node": MountRow(("public",), "/log", "/data/{task.name}"),
    "mount path": MountRow(("public",), "/data/{task.name}", "/data"),
    "sub-path": MountRow(("public",), "/log", "claim:{task.name}", kind=MountKind.PVC),
    "name of a claim": MountRow(("public",), "/log", "{task.name}", kind=MountKind.PVC),
    "attribute": MountRow(
        ("public",), "/log", "lustre.example", kind=MountKind.CSI, attributes={"o": "{task.name}"}
    ),
    "removal": MountRow(("public",), "/log/{task.name}", action=MountAction.REMOVE),
}


@pytest.mark.parametrize("row", [pytest.param(row, id=ident) for ident, row in ROWS.items()])
@pytest.mark.parametrize("name", [pytest.param(name, id=ident) for ident, name in WORDS.items()])
def test_no_name_of_a_task_becomes_more_than_a_part_of_a_path(name: str, row: MountRow) -> None:
    with pytest.raises(Invalid, match="row 0 cannot be mounted"):
        resolve((row,), ADA, named(name))


def test_other_fields_of_a_task_are_no_way_around() -> None:
    row = MountRow(("public",), "/log", "/data/{task.image}/{task.zone}")
    for resource in (ResourceSpec("registry.example/../x"), ResourceSpec(zone="../x")):
        with pytest.raises(Invalid):
            resolve((row,), ADA, task_of(TaskSpec("t", ProgramSpec("t.py"), resource=resource)))


MOUNTS_REFUSED = {
    "root": Mount("/", "/data"),
    "the agent": Mount("/hai/agent", "/data"),
    "all of ours": Mount("/hai", "/data"),
    "climbs to ours": Mount("/data/../hai", "/data"),
    "doubled slash": Mount("//hai", "/data"),
    "processes": Mount("/proc/1/root", "/data"),
    "kernel": Mount("/sys", "/data"),
    "accounts": Mount("/etc/passwd", "/data"),
    "devices": Mount("/dev", "/data"),
    "shared memory of the node": Mount("/dev/shm", "/dev/shm"),
    "token of the cluster": Mount("/var/run/secrets/kubernetes.io/serviceaccount", "/data"),
    "relative": Mount("data", "/data"),
    "colon": Mount("/a:b", "/data"),
    "line break": Mount("/a\nb", "/data"),
    "all of the node": Mount("/data", "/"),
    "climbs out of its source": Mount("/data", "/data/../etc"),
    "relative source": Mount("/data", "etc"),
    "server without a path": Mount("/data", "nfs.example", MountKind.NFS),
    "path of a server climbs": Mount("/data", "nfs.example:/a/../b", MountKind.NFS),
    "claim of another namespace": Mount("/data", "kube-system/x", MountKind.PVC),
    "sub-path climbs": Mount("/data", "claim:../x", MountKind.PVC),
    "absolute sub-path": Mount("/data", "claim:/etc", MountKind.CONFIG_MAP),
    "driver is a path": Mount("/data", "../driver", MountKind.CSI),
    "endless memory": Mount("/data", "99999999Ti", MountKind.TMPFS),
}


@pytest.mark.parametrize("mount", [pytest.param(m, id=i) for i, m in MOUNTS_REFUSED.items()])
def test_mounts_that_nobody_may_have_are_refused_at_the_last_look(
    mount: Mount, made: Made, cluster: ClusterSettings, request_of: Callable[..., RunRequest]
) -> None:
    with pytest.raises(Invalid) as caught:
        made(request_of(mounts=(mount,)), cluster)
    assert [v.field[:6] for v in caught.value.violations] == ["mounts"]


REQUESTS_REFUSED: dict[str, dict[str, Any]] = {
    "unknown image": {"image": "alpine"},
    "image with password": {"image": "bob:pw@registry.example/x"},
    "secret of another namespace": {"pull_secret": "kube-system/token"},
    "two services of one name": {"services": (ServiceRequest("a", ServiceType.TCP, 1),) * 2},
    "port of the node": {"services": (ServiceRequest("a", ServiceType.TCP, 1, node_port=-1),)},
    "directory of ours climbs": {"shared": (SharedDirectory("checkpoints/../admin.token"),)},
    "directory of ours is absolute": {"shared": (SharedDirectory("/etc"),)},
    "all that is ours": {"shared": (SharedDirectory(""),)},
    "a mount over a directory of ours": {
        "shared": (SharedDirectory("x"),),
        "mounts": (Mount("/var/lib/hai/shared/x", "/a"),),
    },
    "two mounts at one path": {"mounts": (Mount("/a", "/b"), Mount("/a", "/c"))},
}


@pytest.mark.parametrize("given", [pytest.param(g, id=i) for i, g in REQUESTS_REFUSED.items()])
def test_the_last_look_trusts_nobody(
    given: dict[str, Any],
    made: Made,
    cluster: ClusterSettings,
    request_of: Callable[..., RunRequest],
) -> None:
    with pytest.raises(Invalid):
        made(request_of(**given), cluster)


KEYS = """
nodeName restartPolicy terminationGracePeriodSeconds automountServiceAccountToken
enableServiceLinks hostname subdomain securityContext tolerations initContainers containers
volumes runAsUser runAsGroup runAsNonRoot supplementalGroups supplementalGroupsPolicy
seccompProfile type key operator effect tolerationSeconds name image command volumeMounts
mountPath readOnly imagePullPolicy resources requests limits cpu memory nvidia.com/gpu rdma/hca
allowPrivilegeEscalation capabilities drop terminationMessagePolicy env valueFrom fieldRef
fieldPath emptyDir medium sizeLimit projected sources configMap secret items path
"""


def keys(value: Any) -> Iterator[str]:
    match value:
        case dict():
            yield from value
            for part in value.values():
                yield from keys(part)
        case list():
            for part in value:
                yield from keys(part)


def test_the_innocent_pod_has_nothing_of_its_node(innocent: list[Manifest]) -> None:
    """The pod with which the others are compared has no privileges."""
    pod = innocent[-1]["spec"]
    assert set(keys(pod)) <= set(KEYS.split())
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["supplementalGroups"] == []
    for container in (*pod["initContainers"], *pod["containers"]):
        powers = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == powers
