"""Tests of the table of commands, help, messages, completion and profiles."""

from __future__ import annotations

import os
import stat
import string
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hai.client import profile as profiles
from hai.client.profile import Profile
from hai.v1.artifact_pb2 import Artifact
from hai.v1.dataset_pb2 import Dataset
from hai.v1.image_pb2 import Image, Registry
from hai.v1.port_pb2 import Port
from hai.v1.storage_pb2 import MountRule
from hai_tui.cli.main import ENTRIES, main, make_root
from hai_tui.i18n import language, text
from hai_tui.i18n.cli import TEXTS


def _command(name: str) -> click.Command:
    root = make_root()
    found = root.get_command(click.Context(root), name)
    assert found is not None
    return found


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_every_command_has_help(entry, hai) -> None:
    assert _command(entry.name).name == entry.name
    done = hai(entry.name, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: hai {entry.name}")


TOOLS = ("env",)  # separate programs with their own common options


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.name not in TOOLS], ids=lambda e: e.name)
def test_every_command_takes_the_common_options(entry) -> None:
    commands = [_command(entry.name)]
    if isinstance(commands[0], click.Group):
        commands = list(commands[0].commands.values())
    for command in commands:
        with click.Context(command) as ctx:
            options = {opt for p in command.get_params(ctx) for opt in p.opts}
        assert {"--json", "--output", "--quiet", "--debug", "--profile", "--no-color"} <= options


def test_help_is_grouped(hai) -> None:
    out = hai("--help").out
    places = [out.index(f"\n{s}:\n") for s in ("Run", "Tasks", "Cluster", "Account", "Admin")]
    assert places == sorted(places)
    assert hai().out == out


@pytest.mark.parametrize("key", TEXTS)
def test_every_text_has_both_languages_with_the_same_fields(key: str) -> None:
    english, chinese = TEXTS[key]

    def fields(sentence: str) -> set[str]:
        return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}

    assert english.strip()
    assert any("\u4e00" <= c <= "\u9fff" for c in chinese) or key in ("section.run",)
    assert fields(english) == fields(chinese)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({"LANG": "zh_CN.UTF-8"}, "zh", id="LANG"),
        pytest.param({"LANG": "en_US.UTF-8", "LC_ALL": "zh_CN"}, "zh", id="LC_ALL beats LANG"),
        pytest.param({"LANG": "zh_CN.UTF-8", "HAI_LANG": "en"}, "en", id="HAI_LANG beats all"),
        pytest.param({"LANG": "de_DE.UTF-8"}, "en", id="others are English"),
    ],
)
def test_language(variables: dict[str, str], expected: str, monkeypatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert language() == expected


def test_chinese_is_spoken(hai, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_LANG", "zh")
    assert hai("list", "name:nothing").err == text("none.tasks") + "\n"
    assert "任务" in hai("--help").out


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        pytest.param([], "st", ["status", "stop", "star", "storage"], id="commands"),
        pytest.param(["stop"], "", ["3", "2", "1"], id="ids"),
        pytest.param(["stop"], "t", ["train"], id="names"),
        pytest.param(["nodes", "-g"], "d", ["default"], id="groups"),
        pytest.param(["node", "cordon"], "n", ["n0", "n1"], id="nodes"),
        pytest.param(["share", "list", "vision", "-g"], "e", ["extra"], id="groups of shares"),
        pytest.param(["right", "grant", "bob"], "im", ["image:"], id="rights"),
        pytest.param(["port", "delete"], "3", ["30022"], id="ports"),
        pytest.param(["artifact", "get"], "v", ["vision/m:1"], id="artifacts"),
        pytest.param(["dataset", "get"], "i", ["imagenet:1"], id="datasets"),
        pytest.param(["image", "check"], "t", ["torch"], id="images"),
        pytest.param(["registry", "set"], "r", ["r.example"], id="registries"),
        pytest.param(["storage", "delete"], "", ["7"], id="mount rules"),
        pytest.param(["storage", "add", "/a", "--owner"], "p", ["public"], id="owners"),
        pytest.param(["priority", "1"], "2", ["2"], id="more ids"),
        pytest.param(["list", "--output"], "n", ["name"], id="values of an option"),
        pytest.param(["group", "update", "g"], "sta", ["staying="], id="settings"),
        pytest.param(["list", "--profile"], "l", ["lab"], id="profiles"),
        pytest.param(["token", "create", "--holder"], "a", ["alice"], id="holders of tokens"),
        pytest.param(["right", "grant", "alice"], "w", ["workspace_gb:"], id="rights"),
        pytest.param(
            ["group", "update", "g"], "ranking=a", ["ranking=attained"], id="values of a setting"
        ),
        pytest.param(["group", "update", "g", "--unset"], "st", ["staying"], id="unset"),
    ],
)
def test_completion(words, incomplete, expected, fake) -> None:
    profiles.save(Profile("lab", "host:1"))
    fake.world.ports[30022] = Port(node_port=30022, user="alice")
    model = Artifact(name="m", version="1", user_group="vision")
    fake.world.artifacts["vision", "m", "1"] = model
    fake.world.datasets["imagenet", "1"] = Dataset(name="imagenet", version="1")
    fake.world.images["torch"] = Image(name="torch", reference="r.example/torch")
    fake.world.registries["r.example"] = Registry(prefix="r.example")
    fake.world.mount_rules[7] = MountRule(id=7, mount_path="/data")
    assert completed(fake, words, incomplete) == expected


def completed(fake, words: list[str], incomplete: str) -> list[str]:
    from click.shell_completion import ShellComplete

    from hai_tui.cli.settings import Settings

    settings = Settings(connect=lambda profile: fake, clock=lambda: 0.0)
    found = ShellComplete(make_root(), {"obj": settings}, "hai", "_HAI_COMPLETE")
    return [c.value for c in found.get_completions(words, incomplete)]


FILE_LINES = ["python", "python a.py", "bash", "exec", "run", "validate-schema a.yml"]


@pytest.mark.parametrize("line", FILE_LINES)
def test_the_shell_is_told_where_files_belong(line: str, fake, capsys, monkeypatch) -> None:
    assert bash_told(line, "t", fake, capsys, monkeypatch) == ["file,t"]


def test_names_with_blanks_stay_one_word_in_bash(fake, capsys, monkeypatch) -> None:
    fake.world.tasks[1].name = "my $task"
    assert bash_told("stop", "my", fake, capsys, monkeypatch) == [r"plain,my\\ \\$task"]


def bash_told(line: str, incomplete: str, fake, capsys, monkeypatch) -> list[str]:
    """Return the lines that the script of `hai completion bash` reads."""
    monkeypatch.setenv("_HAI_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"hai {line} {incomplete}")
    monkeypatch.setenv("COMP_CWORD", str(1 + len(line.split())))
    main([], connect=lambda profile: fake)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("verb", ["list", "set", "delete"])
def test_user_groups_are_completed_from_those_of_users(verb: str, fake) -> None:
    fake.world.users["alice"].groups.extend(["vision", "speech"])
    assert completed(fake, ["share", verb], "") == ["speech", "vision"]
    assert completed(fake, ["share", verb], "v") == ["vision"]


def test_completion_is_quiet_without_a_server(fake) -> None:
    from click.shell_completion import ShellComplete

    from hai_tui.cli.settings import Settings

    fake.lose()
    settings = Settings(connect=lambda profile: fake, clock=lambda: 0.0)
    found = ShellComplete(make_root(), {"obj": settings}, "hai", "_HAI_COMPLETE")
    assert found.get_completions(["stop"], "") == []


@pytest.mark.parametrize(
    "line",
    [
        "token create --expires 1x",
        "quota set ada 2 --expires 1x",
        "right grant ada manage_tasks --expires 1x",
        "message send hello --expires 1x",
        "logs 1 --since 1x",
        "usage --until 1x",
        "audit --since 1x",
    ],
)
def test_a_wrong_time_names_its_option(line: str, hai) -> None:
    done = hai(*line.split())
    assert done.code == 2
    assert f"invalid value for '{line.split()[-2]}': '1x' is not a span" in done.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str, hai) -> None:
    out = hai("completion", shell).out
    assert "_HAI_COMPLETE" in out
    assert "hai-cli" in out


def test_profiles_are_kept_private(hai, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_TOKEN", "s3cret")
    assert hai("config", "set", "lab", "--server", "host:1", "--token").code == 0
    assert stat.S_IMODE((tmp_path / "config.toml").stat().st_mode) == 0o600
    assert profiles.load("lab") == Profile("lab", "host:1", "s3cret")
    for line in ("config list", "config show lab", "config list --json", "config show lab --json"):
        assert "s3cret" not in hai(*line.split()).out
    assert "ca        -\ninsecure  no\n" in hai("config", "show", "lab").out
    assert hai("config", "use", "lab").code == 0
    assert hai("config", "delete", "lab").code == 0
    assert hai("config", "use", "lab").code == 3


def test_init_stores_nothing_when_the_server_does_not_answer(hai, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HAI_TOKEN", "s3cret")
    done = hai("init", "--server", "127.0.0.1:1")
    assert done.code == 5
    assert not (tmp_path / "config.toml").exists()
    assert "s3cret" not in done.err


def test_a_reader_that_leaves_is_no_error() -> None:
    program = "from hai_tui.cli.main import main; import sys; sys.exit(main(['--help']))"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", program], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")
