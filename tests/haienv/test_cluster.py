"""Push, pull and remote builds with a real server, which runs haienv in its own root."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from getpass import getuser
from pathlib import Path
from typing import Any

import pytest

from hai.client.profile import Profile
from hai.v1.environment_pb2 import Environment
from haienv.store.layout import Home
from haienv.store.registry import read_environment
from tests.support.servers import ServerProcess

OWNER = getuser()  # an embedded server's admin is its account
pytestmark = pytest.mark.e2e


@pytest.fixture
def cluster(haienv: Any, tmp_path: Path) -> Iterator[Home]:
    """The server's root of environments; this process uses a profile for the server."""
    root = tmp_path / "cluster"
    home = tmp_path / "server"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAIENV_HOME", str(root))
        server = ServerProcess(home, "--nodes", "1")
        profile = server.start()
    _use(haienv.monkeypatch, profile)
    yield Home(root, OWNER)
    server.end()
    server.sweep()


def _use(monkeypatch: pytest.MonkeyPatch, profile: Profile) -> None:
    monkeypatch.setenv("HAI_SERVER", profile.server)
    monkeypatch.setenv("HAI_TOKEN", profile.token)


def test_push_and_pull_keep_the_lock(
    haienv: Any, cluster: Home, make_wheel: Callable[..., Path]
) -> None:
    ours = make_wheel("secret", "1.5+lab", requires=["fast"])
    haienv.ok("create base --no_extend fast==1.0 tool --extra-environment", "A=b c")
    haienv.ok("create top --extend base plain", f"secret @ {ours.as_uri()}")
    refused = haienv("push top --json")
    assert refused.code == 1
    assert "haienv push 'base[ann]'" in refused.error["hint"]
    pushed = haienv.ok("push base --visibility public --json").json
    assert pushed["lock_hash"] == haienv.get("base").layer.lock_hash
    (listed,) = haienv.ok("list --remote --json").json["own"]
    here = haienv.ok("list --json").json["own"][0]
    same = ("name", "state", "python", "packages", "lock_hash", "parent")
    assert [listed[key] for key in same] == [here[key] for key in same]
    assert (listed["owner"], listed["visibility"]) == (OWNER, "public")
    assert haienv.ok("list --remote --names").out == "base\n"
    assert "`haienv list --remote` shows them" in haienv("pull bsae --json").error["message"]
    nobody = haienv.ok("list --remote -u zoe").err
    assert "zoe has no environments that you can see on the cluster" in nobody
    # As if another user owned it.
    shutil.copytree(cluster.root / OWNER, cluster.root / "aaa", symlinks=True)
    haienv.ok("push top")
    remote = read_environment(cluster, OWNER, "top")
    assert remote is not None
    assert remote.usable_layer.parents[0].owner == OWNER
    program = "import fast, plain, secret; print(fast.VERSION, secret.VERSION)"
    done = subprocess.run(
        [remote.path / "bin" / "python", "-c", program], capture_output=True, text=True
    )
    assert done.stdout == "1.0 1.5+lab\n"
    base = read_environment(cluster, OWNER, "base")
    assert base is not None
    assert base.metadata.config.variables == {"A": "b c"}
    assert haienv("push base").code == 1
    haienv.ok("push base --replace")
    ann = haienv.as_user("eve")
    ann.ok("pull base")
    assert ann.get("base").layer.lock_hash == pushed["lock_hash"]
    assert ann.get("base").metadata.config.variables == {"A": "b c"}


def test_environments_of_an_external_python_cannot_be_pushed(haienv: Any, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run(["uv", "venv", "-q", venv], check=True)
    subprocess.run(["uv", "pip", "install", "-q", "-p", venv, "tool"], check=True)
    haienv.monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    haienv.ok("create mine plain")
    refused = haienv("push mine --json")
    assert refused.code == 1
    assert "which is not a haienv environment" in refused.error["message"]
    assert "`haienv create NAME --no_extend plain`" in refused.error["hint"]


def test_a_build_resolves_on_top_of_a_remote_parent(haienv: Any, cluster: Home) -> None:
    haienv.ok("build base --remote fast==1.0")
    haienv.ok(f"build top --remote --extend 'base[{OWNER}]' app")
    remote = read_environment(cluster, OWNER, "top")
    assert remote is not None
    assert [line.split()[0] for line in remote.lock().splitlines() if line[0] != "#"] == [
        "app==1.0",
        "tool==1.0",
    ]
    assert remote.layer is not None
    assert [p.name for p in remote.layer.parents] == ["base"]
    assert haienv(f"build top --remote --extend 'base[{OWNER}]' greedy --replace").code == 1
    assert haienv("pull nothing").code == 3


def test_a_failed_build_reports_the_full_reason(haienv: Any, cluster: Home) -> None:
    """uv explains a failure in many lines, more than the server's error may have."""
    names = [f"no-such-{'x' * 40}-{n}" for n in range(60)]
    lock = "# haienv lock 1\n# python 3.11\n" + "".join(
        f"{name}==1.0 --hash=sha256:{'0' * 64}\n" for name in names
    )
    path = haienv.home.root.parent / "lock.txt"
    path.write_text(lock.replace("3.11", "{}.{}".format(*sys.version_info[:2])))
    failed = haienv("build broken --remote --json --from", path)
    assert failed.code == 1
    assert failed.error["reason"] == "BUILD_FAILED"
    result = failed.error["message"]
    assert result.startswith("broken was not built: uv pip sync: ")
    assert "no-such-" in result
    assert "hint" in result


def test_a_missing_server_is_reported(haienv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    haienv.ok("create one --no_extend")
    assert haienv("push one").code == 2
    monkeypatch.setenv("HAI_SERVER", "127.0.0.1:1")
    monkeypatch.setenv("HAI_TOKEN", "x")
    assert haienv("pull one --json").error["reason"] == "UNREACHABLE"


@pytest.fixture
def fake_environments(
    haienv: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Environment], None]:
    """Registers environments at a fake server with the same root."""
    from hai.client.fake.server import FakeClient

    registered: list[Environment] = []

    class Fake(FakeClient):
        def __init__(self, _: object) -> None:
            super().__init__()
            self.world.user = "ann"
            self.world.environments |= {("ann", each.name): each for each in registered}

    monkeypatch.setattr("hai.client.fake.workspaces.ROOT", str(haienv.home.root))
    monkeypatch.setenv("HAI_SERVER", "127.0.0.1:1")
    monkeypatch.setattr("hai.client.client.Client", Fake)
    return registered.append


@pytest.mark.parametrize("line", ["remove one --yes", "rename one two"])
@pytest.mark.parametrize(
    ("used", "force", "code"),
    [
        pytest.param([], "", 0, id="no task uses it"),
        pytest.param([7, 9], "", 1, id="tasks use it"),
        pytest.param([7, 9], "--force", 0, id="tasks use it, and it is forced"),
    ],
)
def test_environments_that_tasks_use_keep_their_names(
    haienv: Any, fake_environments: Any, used: list[int], force: str, code: int, line: str
) -> None:
    haienv.ok("create one --no_extend")
    fake_environments(Environment(name="one", owner="ann", used_by=used))
    result = haienv(f"{line} {force}")
    assert result.code == code, result.err
    assert ("7, 9" in result.err) == (code == 1)


def test_layers_that_programs_run_in_are_kept(haienv: Any, fake_environments: Any) -> None:
    """gc and remove keep layers that programs of tasks run in."""
    haienv.ok("create one --no_extend fast==1.0")
    first = haienv.get("one").path
    haienv.ok("install one plain")
    haienv.ok("install one tool")
    fake_environments(Environment(name="two", owner="ann", used_by=[7], layer=first.name))
    result = haienv.ok("gc --days 0 --yes --json").json
    assert (result["layers"], result["in_use"], first.is_dir()) == ([], [str(first)], True)
    haienv.ok("clone one three")
    third = haienv.get("three").path
    fake_environments(Environment(name="four", owner="ann", used_by=[8], layer=third.name))
    haienv.ok("remove one three --yes --force")
    assert third.is_dir()
    haienv.ok("doctor --fix")
    assert third.is_dir()


def test_gc_needs_an_answer_of_the_server(haienv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    haienv.ok("create one --no_extend")
    first = haienv.get("one").path
    haienv.ok("install one plain")
    haienv.ok("install one tool")
    second = haienv.get("one").metadata.previous
    haienv.ok("config set one description x")
    monkeypatch.setenv("HAI_SERVER", "127.0.0.1:1")
    monkeypatch.setenv("HAI_TOKEN", "x")
    refused = haienv("gc --days 0 --yes --json")
    assert (refused.code, refused.error["reason"]) == (5, "UNREACHABLE")
    assert "--force" in refused.error["hint"]
    assert first.is_dir()
    haienv.ok("gc --days 0 --yes --force")
    assert not first.is_dir()
    assert haienv.home.layer("ann", second).is_dir()


def test_remove_needs_an_answer_of_the_server(haienv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    haienv.ok("create one --no_extend")
    monkeypatch.setenv("HAI_SERVER", "127.0.0.1:1")
    monkeypatch.setenv("HAI_TOKEN", "x")
    assert haienv("remove one --yes").code == 5
    haienv.ok("remove one --yes --force")
