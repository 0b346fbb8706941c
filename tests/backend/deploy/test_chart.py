"""The manifests of the chart are valid and secure, and contain settings that the server accepts."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from kubernetes import client

from hai_backend import config
from hai_backend.domain.priority import LEVELS
from hai_backend.launch.kubernetes.options import read
from hai_backend.proxy.listener import Listener
from hai_backend.server.listen import service_addresses

from .conftest import CHART, Body, Refused, Render, one

EXTERNAL: Body = {"postgresql": {"enabled": False}, "database": {"existingSecret": "db"}}
EVERYTHING: Body = {
    "kubernetes": {"default_uid": 20000, "tolerations": [{"key": "gpu", "seconds": 30}]},
    "settings": {"resync_seconds": 20, "log_bytes_per_rank": 1 << 30, "build_within": 30.5},
    "tasks": {"namespace": "lab-tasks"},
    "ingress": {"enabled": True, "host": "hai.example.org", "tlsSecret": "edge"},
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "alerts": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "networkPolicy": {
        "clients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "browsers": [{"namespaceSelector": {"matchLabels": {"name": "ingress-nginx"}}}],
    },
    "proxy": {
        "url": "https://hai.example.org",
        "service": {"type": "LoadBalancer", "annotations": {"example.org/lb": "internal"}},
        "ingress": {"enabled": True, "tlsSecret": "wild", "annotations": {"a.b/c": "d"}},
    },
    "image": {"repository": "example/hai", "pullSecret": "login"},
    "nodeSelector": {"pool": "service"},
    "tolerations": [{"key": "service", "operator": "Exists"}],
    "podAnnotations": {"example.org/team": "platform"},
    "service": {"annotations": {"example.org/lb": "internal"}},
    "priorityClassName": "system-cluster-critical",
}
PATHS: Body = {
    "proxy": {"url": "https://hai.example.org:8443", "paths": True, "ingress": {"enabled": True}}
}
CASES = [
    pytest.param({}, id="least"),
    pytest.param(EXTERNAL, id="own database"),
    pytest.param(EVERYTHING, id="everything"),
    pytest.param({"tls": {"existingSecret": "cert"}}, id="own certificate"),
    pytest.param({"tls": {"insecure": True}, "metrics": {"enabled": False}}, id="plain text"),
    pytest.param(
        {"tls": {"certManager": {"enabled": True, "issuer": {"name": "ca"}}, "names": ["hai.org"]}},
        id="cert-manager",
    ),
    pytest.param(PATHS, id="tasks as paths"),
    pytest.param(
        {"proxy": {"url": "http://localhost:7480"}, "tls": {"insecure": True}}, id="plain proxy"
    ),
    pytest.param({"replicas": 1, "shared": {"accessMode": "ReadWriteOnce"}}, id="one server"),
    pytest.param({"shared": {"existingClaim": "nfs"}, "networkPolicy": {"enabled": False}}, id="nfs"),
    pytest.param(
        {"runTokenKey": {"existingSecret": "key"}, "tasks": {"priorityClasses": False}}, id="key"
    ),
    pytest.param(
        {"image": {"repository": "e/hai", "digest": "sha256:" + "0" * 64}, "service": {"port": 443}},
        id="digest",
    ),
]  # fmt: skip
REFUSED = [
    pytest.param({"image": {"repository": ""}}, "image.repository is needed", id="no image"),
    pytest.param({"postgresql": {"enabled": False}}, "a database is needed", id="no database"),
    pytest.param({"database": {"existingSecret": "db"}}, "exclude one another", id="two databases"),
    pytest.param({"replicas": 0}, "/replicas", id="no replica"),
    pytest.param({"replica": 3}, "'replica' not allowed", id="unknown value"),
    pytest.param({"cluster": "My Cluster"}, "/cluster", id="bad name"),
    pytest.param({"admin": "ada.l"}, "/admin", id="a name that no user may have"),
    pytest.param(
        {"settings": {"database": "x"}}, "propertyName 'database'", id="a setting of the chart's"
    ),
    pytest.param({"ingress": {"enabled": True}}, "ingress.host is needed", id="ingress"),
    pytest.param({"tls": {"certManager": {"enabled": True}}}, "issuer.name is needed", id="issuer"),
    pytest.param({"shared": {"accessMode": "ReadWriteOnce"}}, "several nodes", id="one writer"),
    pytest.param({"proxy": {"url": "hai.example.org"}}, "/proxy/url", id="no url"),
    pytest.param({"proxy": {"url": "http://hai.org"}}, "must begin with https", id="plain text"),
    pytest.param({"proxy": {"ingress": {"enabled": True}}}, "proxy.url is needed", id="nowhere"),
    pytest.param(
        {"proxy": {"url": "https://hai.org", "port": 7450}}, "proxy.port is", id="one port for two"
    ),
    pytest.param({"settings": {"http_url": "x"}}, "propertyName 'http_url'", id="two urls"),
]


def settings_of(manifests: list[Body]) -> dict[str, Any]:
    return tomllib.loads(one(manifests, "ConfigMap")["data"]["hai.toml"])


def server(manifests: list[Body]) -> Body:
    spec: Body = one(manifests, "StatefulSet")["spec"]["template"]["spec"]
    return spec


def checked(body: Body) -> None:
    """Validate an object with the models of the official client, which forbid unknown fields. Raises ValueError."""
    model = getattr(client, f"V1{body['kind']}")
    model.model_validate(body)


@pytest.mark.parametrize("values", CASES)
def test_objects_are_valid_for_the_api(render: Render, values: Body) -> None:
    for body in render(**values):
        if body["apiVersion"].startswith(("monitoring.coreos.com", "cert-manager.io")):
            assert body["kind"] in ("ServiceMonitor", "PrometheusRule", "Certificate")
        else:
            checked(body)


def test_the_check_finds_what_the_api_does_not_know(render: Render) -> None:
    body = one(render(), "StatefulSet")
    body["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(ValueError, match="readinesProbe"):
        checked(body)


@pytest.mark.parametrize("values", CASES)
def test_no_object_is_made_twice_and_all_are_marked(render: Render, values: Body) -> None:
    manifests = render(**values)
    names = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests]
    assert len(set(names)) == len(names)
    assert all(
        m["metadata"]["labels"]["app.kubernetes.io/instance"] == "hai"
        and m["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        for m in manifests
    )


@pytest.mark.parametrize(("values", "why"), REFUSED)
def test_wrong_values_are_refused(render: Render, values: Body, why: str) -> None:
    with pytest.raises(Refused, match=re.escape(why)):
        render(**values)


@pytest.mark.parametrize("values", CASES)
def test_the_server_takes_its_settings(render: Render, values: Body, tmp_path: Path) -> None:
    manifests = render(**values)
    (tmp_path / "hai.toml").write_text(one(manifests, "ConfigMap")["data"]["hai.toml"])
    environment = {"HAI_SERVER_DATABASE": "postgresql://x/y", "HAI_SERVER_ADVERTISE": "hai-0.x"}
    settings = config.load(tmp_path, {}, environment)
    pods, _ = read(settings.kubernetes, {"instance": settings.cluster})
    container = server(manifests)["containers"][0]
    assert pods.agent_image == container["image"]
    assert settings.listen == f"0.0.0.0:{container['ports'][0]['containerPort']}"
    assert {e["name"] for e in container["env"]} == {"POD_NAME", *environment}
    assert settings.insecure == (settings.tls_cert == "")


@pytest.mark.parametrize(
    ("proxy", "host", "path", "request_to"),
    [
        pytest.param({}, "*.hai.example.org", "/", ("t7.hai.example.org", "/lab"), id="names"),
        pytest.param({"paths": True}, "hai.example.org", "/t", ("hai.example.org", "/t/7/main/lab"), id="paths"),
    ],
)  # fmt: skip
def test_what_the_ingress_lets_in_is_what_the_proxy_knows(
    render: Render, proxy: Body, host: str, path: str, request_to: tuple[str, str]
) -> None:
    values = {"url": "https://hai.example.org", "ingress": {"enabled": True}, **proxy}
    manifests = render(proxy=values)
    ingress = one(manifests, "Ingress", "hai-browsers")
    (rule,) = ingress["spec"]["rules"]
    assert (rule["host"], rule["http"]["paths"][0]["path"]) == (host, path)
    found = settings_of(manifests)
    door = Listener("127.0.0.1", 0)
    target = service_addresses(config.Settings(Path(), **_proxy_settings(found)), door).parse(
        *request_to
    )
    door.close()
    assert target is not None
    assert (target.task_id, target.service) == (7, "")
    notes = ingress["metadata"]["annotations"]
    assert notes["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"
    assert int(notes["nginx.ingress.kubernetes.io/proxy-read-timeout"]) >= 24 * 3600


def _proxy_settings(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in ("http_listen", "http_url", "http_paths")}


def test_browsers_are_served_only_where_operators_say(render: Render) -> None:
    manifests = render()
    assert settings_of(manifests)["http_listen"] == ""
    assert "browsers" not in json.dumps(manifests)


def test_followers_reach_the_door_of_the_leader(render: Render) -> None:
    policy = one(render(**EVERYTHING), "NetworkPolicy")["spec"]
    assert {"port": 7480} in policy["egress"][-1]["ports"]
    (rule,) = [rule for rule in policy["ingress"] if rule["ports"] == [{"port": "browsers"}]]
    own = one(render(), "Service")["spec"]["selector"]
    assert {"podSelector": {"matchLabels": own}} in rule["from"]


def test_values_are_passed_on_as_they_were_written(render: Render) -> None:
    found = settings_of(render(**EVERYTHING))
    assert found["log_bytes_per_rank"] == 1 << 30
    assert (found["resync_seconds"], found["build_within"]) == (20, 30.5)
    assert found["kubernetes"]["default_uid"] == 20000
    assert found["kubernetes"]["tolerations"] == [{"key": "gpu", "seconds": 30}]
    assert found["kubernetes"]["namespace"] == "lab-tasks"


@pytest.mark.parametrize("values", CASES)
def test_files_that_settings_name_are_mounted(render: Render, values: Body) -> None:
    manifests = render(**values)
    container = server(manifests)["containers"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in server(manifests)["volumes"]}
    found = settings_of(manifests)
    named = [found[k] for k in ("run_token_key", "tls_cert", "tls_key", "tls_ca") if k in found]
    assert all(str(Path(name).parent) in mounts.values() for name in named)
    assert found["shared"] == mounts["shared"]


@pytest.mark.parametrize(
    ("values", "volume"),
    [
        pytest.param({}, "pvc:hai-shared", id="the chart's claim"),
        pytest.param({"shared": {"existingClaim": "nfs"}}, "pvc:nfs", id="own claim"),
        pytest.param({"tasks": {"namespace": "jobs"}}, "", id="no claim in another namespace"),
        pytest.param(
            {"tasks": {"namespace": "jobs"}, "kubernetes": {"shared_volume": "pvc:theirs"}},
            "pvc:theirs",
            id="a claim of the other namespace",
        ),
    ],
)
def test_tasks_see_their_part_of_the_shared_volume(
    render: Render, values: Body, volume: str
) -> None:
    manifests = render(**values)
    assert settings_of(manifests)["kubernetes"].get("shared_volume", "") == volume
    claims = [v.get("persistentVolumeClaim") for v in server(manifests)["volumes"]]
    own = {"claimName": volume.removeprefix("pvc:")}
    assert own in claims or "tasks" in values


@pytest.mark.parametrize("values", CASES)
def test_every_pod_is_restricted(render: Render, values: Body) -> None:
    """As the level `restricted` of Pod Security Standards wants it, and a file system that is read only."""
    sets = [m for m in render(**values) if m["kind"] == "StatefulSet"]
    for pod in (body["spec"]["template"]["spec"] for body in sets):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in volume for volume in pod["volumes"])
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"]
            assert security["allowPrivilegeEscalation"] is False
            assert {"requests", "limits"} <= container["resources"].keys()
            assert {"readinessProbe", "livenessProbe"} <= container.keys()


@pytest.mark.parametrize(
    ("values", "probe"),
    [
        pytest.param({"tls": {"insecure": True}}, "grpc", id="by Kubernetes itself"),
        pytest.param({}, "exec", id="with TLS by our own program"),
    ],
)
def test_health_is_asked_by_grpc(render: Render, values: Body, probe: str) -> None:
    assert probe in server(render(**values))["containers"][0]["readinessProbe"]


def test_other_settings_are_other_pods(render: Render) -> None:
    def mark(**values: Any) -> str:
        meta = one(render(**values), "StatefulSet")["spec"]["template"]["metadata"]
        return str(meta["annotations"]["checksum/settings"])

    assert mark() == mark()
    assert mark(settings={"resync_seconds": 7}) != mark()


@pytest.mark.parametrize(
    ("values", "separate"),
    [
        pytest.param({}, True, id="unless somebody says so"),
        pytest.param({"networkPolicy": {"separateUsers": False}}, False, id="an open network"),
        pytest.param({"networkPolicy": {"enabled": False}}, False, id="no policies at all"),
        pytest.param({"kubernetes": {"separate_users": False}}, False, id="as in hai.toml"),
    ],
)
def test_users_are_kept_apart(render: Render, values: Body, separate: bool) -> None:
    pods, _ = read(settings_of(render(**values))["kubernetes"], {})
    assert pods.separate_users is separate


def test_levels_have_priority_classes_that_preempt_nobody(render: Render) -> None:
    manifests = render()
    classes = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "PriorityClass"}
    named = settings_of(manifests)["kubernetes"]["priority_classes"]
    assert named.keys() == {level.name for level in LEVELS} | {"SPOT"}
    assert sorted(named.values()) == sorted(classes)
    assert all(c["preemptionPolicy"] == "Never" for c in classes.values())
    ranked = [classes[named[level.name]]["value"] for level in sorted(LEVELS, reverse=True)]
    assert ranked == sorted(ranked, reverse=True)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl reads the certificate")
@pytest.mark.parametrize(
    "name",
    [
        "hai.lab.svc",
        "hai-1.hai-peers.lab.svc",
        "localhost",
        "hai.example.org",
        "t7.web.example.org",
        "127.0.0.1",
        "10.1.2.3",
        "fd00::1",
    ],
)
def test_the_certificate_holds_for_every_name_of_the_servers(
    render: Render, tmp_path: Path, name: str
) -> None:
    names = ["hai.example.org", "10.1.2.3", "fd00::1"]
    values = {"tls": {"names": names}, "proxy": {"url": "https://web.example.org"}}
    secret = one(render(**values), "Secret", "hai-tls")["data"]
    for file in ("ca.crt", "tls.crt"):
        (tmp_path / file).write_bytes(base64.b64decode(secret[file]))
    what = "-verify_hostname" if name[-1].isalpha() else "-verify_ip"
    verify = ["openssl", "verify", "-CAfile", tmp_path / "ca.crt", what, name]
    done = subprocess.run([*verify, tmp_path / "tls.crt"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_cert_manager_is_asked_for_the_same_names(render: Render) -> None:
    manager = {"enabled": True, "issuer": {"name": "ca"}}
    made = render(tls={"certManager": manager, "names": ["hai.example.org", "10.1.2.3"]})
    spec = one(made, "Certificate")["spec"]
    names = ["hai.lab.svc", "*.hai-peers.lab.svc", "localhost", "hai.example.org"]
    assert (spec["dnsNames"], spec["ipAddresses"]) == (names, ["127.0.0.1", "10.1.2.3"])


@pytest.mark.parametrize(
    ("tls", "protocol", "backend"),
    [({}, None, "GRPCS"), ({"insecure": True}, "kubernetes.io/h2c", "GRPC")],
)
def test_others_are_told_whether_the_servers_speak_tls(
    render: Render, tls: Body, protocol: str | None, backend: str
) -> None:
    made = render(tls=tls, ingress={"enabled": True, "host": "hai.example.org"})
    assert one(made, "Service", "hai")["spec"]["ports"][0].get("appProtocol") == protocol
    notes = one(made, "Ingress", "hai")["metadata"]["annotations"]
    assert notes["nginx.ingress.kubernetes.io/backend-protocol"] == backend
    # no limit for the size of pushes
    assert notes["nginx.ingress.kubernetes.io/proxy-body-size"] == "0"


def test_the_key_of_run_tokens_is_long_enough(render: Render) -> None:
    secret = one(render(), "Secret", "hai-run-token-key")["data"]["key"]
    assert len(base64.b64decode(secret)) >= 32


@pytest.mark.parametrize("values", CASES)
def test_no_secret_is_in_a_config_map(render: Render, values: Body) -> None:
    manifests = render(**values)
    secrets = [m for m in manifests if m["kind"] == "Secret"]
    words = {base64.b64decode(v).decode() for s in secrets for v in s["data"].values()}
    others = json.dumps([m for m in manifests if m["kind"] != "Secret"])
    assert not any(json.dumps(word)[1:-1] in others for word in words)


def labels(name: str) -> Body:
    own = {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": "hai"}
    return {"matchLabels": own}


def volume(size: str, mode: str) -> Body:
    return {"accessModes": [mode], "resources": {"requests": {"storage": size}}}


INSTALLED: dict[tuple[str, str], Any] = {
    ("StatefulSet", "hai"): ("hai-peers", "Parallel", labels("hai-server"), None),
    ("StatefulSet", "hai-postgresql"): (
        *("hai-postgresql", None, labels("hai-postgresql")),
        [{"metadata": {"name": "data"}, "spec": volume("10Gi", "ReadWriteOnce")}],
    ),
    ("PersistentVolumeClaim", "hai-shared"): volume("100Gi", "ReadWriteMany"),
    ("Secret", "hai-run-token-key"): {"key"},
    ("Secret", "hai-postgresql"): {"password", "url"},
    ("Secret", "hai-tls"): {"ca.crt", "tls.crt", "tls.key"},
}
"""What Kubernetes never changes, and what programs and data hang on. Whoever must change it here breaks upgrades."""


def kept(body: Body) -> Any:
    if body["kind"] == "Secret":
        return set(body["data"])
    if body["kind"] == "PersistentVolumeClaim":
        return body["spec"]
    never = ("serviceName", "podManagementPolicy", "selector", "volumeClaimTemplates")
    return tuple(body["spec"].get(key) for key in never)


def test_an_installed_release_can_be_upgraded(render: Render) -> None:
    kinds = {kind for kind, _ in INSTALLED}
    found = {(b["kind"], b["metadata"]["name"]): b for b in render() if b["kind"] in kinds}
    assert {key: kept(body) for key, body in found.items()} == INSTALLED


def test_selectors_find_their_pods(render: Render) -> None:
    manifests = render()
    labels = [
        m["spec"]["template"]["metadata"]["labels"] for m in manifests if m["kind"] == "StatefulSet"
    ]
    for body in manifests:
        spec = body.get("spec", {})
        chosen = {
            "Service": spec.get("selector"),
            "NetworkPolicy": spec.get("podSelector", {}).get("matchLabels"),
            "PodDisruptionBudget": (spec.get("selector") or {}).get("matchLabels"),
        }.get(body["kind"])
        if chosen:
            assert sum(chosen.items() <= found.items() for found in labels) == 1, body["metadata"]


def test_one_server_has_no_disruption_budget(render: Render) -> None:
    """With a budget, the node of a single server could never be drained."""
    alone = render(replicas=1)
    assert not [m for m in alone if m["kind"] == "PodDisruptionBudget"]
    assert [m for m in render(replicas=2) if m["kind"] == "PodDisruptionBudget"]


def test_the_schema_is_valid_and_knows_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(values, schema)
    assert values.keys() == schema["properties"].keys() - {"global"}
    for key, value in values.items():
        known = schema["properties"][key].get("properties")
        if known is not None:
            assert value.keys() == known.keys(), key


def test_helm_finds_nothing_to_complain_about(helm: Any) -> None:
    given = json.dumps({"image": {"repository": "e/hai"}, "postgresql": {"enabled": True}})
    said = helm("lint", str(CHART), "--strict", "--values=-", given=given)
    assert "0 chart(s) failed" in said


def test_the_chart_is_of_this_version() -> None:
    import importlib.metadata

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    ours = importlib.metadata.version("hai-platform")
    assert (chart["version"], chart["appVersion"]) == (ours, ours)
