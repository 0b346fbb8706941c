"""A push with nothing to do answers as the whole program does, and leaves everything else to that."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from hai.client import profile as profiles
from hai.client.profile import Profile, save
from hai_sync.cli.main import main
from hai_sync.core import ignore, names
from hai_sync.index import Index
from hai_sync.quick import asking, surroundings
from hai_sync.quick.calling import Line
from hai_sync.quick.same import OWN, RULES
from hai_sync.quick.syncing import DEFAULT_FILTER, quick_push
from hai_sync.scan import Filter
from hai_sync.workspace_dir import find

GET = "/hai.v1.WorkspaceService/GetWorkspace"


@pytest.fixture
def root(profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pushed workspace whose files have been still for a while."""
    monkeypatch.setenv("HAI_SERVER", profile.server)
    monkeypatch.setenv("HAI_TOKEN", profile.token)
    root = tmp_path / "root"
    (root / "folder" / "inner").mkdir(parents=True)
    (root / "__pycache__").mkdir()
    for name in ("a.py", "folder/b", "__pycache__/x.pyc"):
        (root / name).write_text("one")
    (root / "link").symlink_to("a.py")
    (root / ".gitignore").write_text("*.log\n")
    (root / "train.log").write_text("epoch 1")
    monkeypatch.chdir(root)
    assert main(["init", f"w-{uuid4().hex[:10]}"]) == 0
    push()
    return root


NOTHING = {"revision": 1, "files": 4, "ignored": 2, "uploaded": 0, "wire_bytes": 0}


def push() -> None:
    """As the whole program does it; and then some time goes by."""
    assert main(["push", "-q"]) == 0
    time_goes_by()


def time_goes_by() -> None:
    index = Index(find().state / "index.sqlite")
    index.set_facts(looked_ns=str(time.time_ns() + 10**10))
    index.close()


def test_it_says_what_the_whole_program_says(root: Path, capsys) -> None:
    assert quick_push(str(root), only_look=True) == NOTHING
    capsys.readouterr()
    for options in ([], ["--json"]):
        said = [_said(["push", *options, *more], capsys) for more in ((), ("--jobs", "2"))]
        assert said[0] == said[1]


def _said(arguments: list[str], capsys) -> object:
    assert main(arguments) == 0
    out = capsys.readouterr().out
    return json.loads(out.splitlines()[-1]) if "--json" in arguments else out


def _same_size(root: Path) -> None:
    before = (root / "a.py").stat()
    (root / "a.py").write_text("two")
    os.utime(root / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))


def _linked(root: Path) -> None:
    (root / "folder").rename(root.parent / "elsewhere")
    (root / "folder").symlink_to(root.parent / "elsewhere")


def _other_kind(root: Path) -> None:
    (root / "folder/inner").rmdir()
    (root / "folder/inner").write_text("")


CHANGES = [
    pytest.param(lambda root: (root / "new").write_text("1"), id="a new file"),
    pytest.param(lambda root: (root / "a.py").write_text("1"), id="another content"),
    pytest.param(_same_size, id="another content of the same size and time"),
    pytest.param(lambda root: (root / "a.py").unlink(), id="a removed file"),
    pytest.param(lambda root: (root / "a.py").chmod(0o755), id="another mode"),
    pytest.param(lambda root: (root / "folder/new").mkdir(), id="an empty directory"),
    pytest.param(lambda root: (root / "folder/inner").rmdir(), id="a directory less"),
    pytest.param(_other_kind, id="a file in a directory's place"),
    pytest.param(_linked, id="a link in a directory's place"),
    pytest.param(lambda root: (root / ".gitignore").write_text("*.txt\n"), id="other rules"),
    pytest.param(lambda root: (root / "folder/.haiignore").write_text("x"), id="new rules"),
    pytest.param(lambda root: (root / "x.log").write_text(""), id="new and perhaps left out"),
    pytest.param(lambda root: (root / ".hfai/tmp").mkdir(), id="an interrupted sync"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_different_is_left_to_the_whole_program(
    root: Path, change: Callable[[Path], object]
) -> None:
    assert quick_push(str(root), only_look=True) is not None
    change(root)
    assert quick_push(str(root), only_look=True) is None


EDITS = [
    pytest.param(lambda root: (root / "a.py").write_text("two, longer"), id="another content"),
    pytest.param(_same_size, id="another content of the same size and time"),
    pytest.param(lambda root: (root / "a.py").chmod(0o755), id="another mode"),
    pytest.param(lambda root: (root / "a.py").write_text(""), id="an empty file"),
    pytest.param(lambda root: (root / "a.py").touch(), id="another time"),
    pytest.param(
        lambda root: (root / "folder/b").write_bytes(os.urandom(1 << 20)), id="a megabyte"
    ),
    pytest.param(
        lambda root: [(root / name).write_text("same") for name in ("a.py", "folder/b")],
        id="two of one content",
    ),
]


@pytest.mark.parametrize("edit", EDITS)
def test_edited_files_are_pushed_and_remembered_as_the_whole_program_does(
    root: Path, edit: Callable[[Path], object], capsys
) -> None:
    cluster = _cluster(capsys)
    edit(root)
    before = _remembered()
    facts = quick_push(str(root))
    assert facts is not None
    quickly = _remembered()
    _restore(before)  # as if it had been killed before it could remember
    push()
    assert _remembered() == quickly
    capsys.readouterr()
    assert main(["diff"]) == 0
    assert capsys.readouterr().out == ""
    assert _here(cluster) == _here(root)


DYING = """
import os, sys
left = int(sys.argv.pop())
def count(frame, event, call):
    global left
    told = event == "c_call" and call.__name__ in ("sendall", "read", "execute", "executemany")
    if told and "hai_sync/quick/" in frame.f_code.co_filename:
        left -= 1
        if left < 0:
            os._exit(9)
sys.setprofile(count)
from hai_sync.quick.syncing import quick_push
sys.exit(0 if quick_push(os.getcwd()) else 3)
"""


def _dies(steps: int) -> int:
    """A quick push of a process that ends before it says, hears, asks or notes anything after so many times."""
    return subprocess.run([sys.executable, "-c", DYING, str(steps)]).returncode


def test_killed_at_any_step_it_leaves_whole_files_and_stands_in_nobodys_way(
    root: Path, capsys
) -> None:
    cluster = _cluster(capsys)
    steps, before = 0, _here(cluster)
    while True:
        for name in ("a.py", "folder/b"):
            (root / name).write_text(f"{name} of {steps}")
        code, here = _dies(steps), _here(root)
        there = _here(cluster)  # the server may be about to commit: each file by itself is whole
        assert all(there[name] in (before[name], here[name]) for name in here)
        if code == 0:
            break
        assert code == 9
        push()
        before = here
        assert _here(cluster) == before
        steps += 1
    assert steps > 15
    assert _here(cluster) == _here(root)


def _cluster(capsys) -> Path:
    """Where the server has the files."""
    main(["list", "--json"])
    mine = json.loads(capsys.readouterr().out.splitlines()[-1])["workspaces"]
    return next(Path(each["remote"]) for each in mine if each["name"] == find().name)


def _remembered() -> dict[str, list[tuple[object, ...]]]:
    tables = ("seen", "base", "theirs", "left_out")
    with closing(sqlite3.connect(find().state / "index.sqlite")) as db:
        found = {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
        query = "SELECT * FROM facts WHERE name IN ('revision', 'clean', 'filter', 'made')"
        return {**found, "facts": db.execute(query).fetchall()}


def _restore(tables: dict[str, list[tuple[object, ...]]]) -> None:
    with closing(sqlite3.connect(find().state / "index.sqlite")) as db, db:
        for table, rows in tables.items():
            for row in rows:
                marks = ", ".join("?" * len(row))
                db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)


def _here(root: Path) -> dict[str, tuple[bytes, bool]]:
    names = ("a.py", "folder/b", ".gitignore")
    return {n: ((root / n).read_bytes(), os.access(root / n, os.X_OK)) for n in names}


def test_what_the_server_has_meanwhile_is_never_overwritten(root: Path, capsys) -> None:
    files = _cluster(capsys)
    (files / "a.py").write_text("written by a task")
    (root / "a.py").write_text("written here")
    assert quick_push(str(root)) is None
    assert (files / "a.py").read_text() == "written by a task"
    assert main(["push"]) == 1
    assert "both sides have changed" in capsys.readouterr().err


def test_the_right_to_write_is_given_back(root: Path) -> None:
    for number in range(3):
        (root / "a.py").write_text(f"{number}")
        facts = quick_push(str(root))
        assert facts is not None
        assert facts["revision"] == number + 2
        time_goes_by()


def test_what_is_too_much_for_it_is_left_to_the_whole_program(root: Path) -> None:
    (root / "a.py").write_bytes(bytes(1 << 20) + b"x")
    assert quick_push(str(root)) is None
    push()
    assert quick_push(str(root)) is not None


def test_what_is_left_out_is_known_once_the_whole_program_has_seen_it(root: Path) -> None:
    (root / "new.log").write_text("1")
    assert quick_push(str(root), only_look=True) is None
    push()
    assert quick_push(str(root), only_look=True) == {**NOTHING, "ignored": 3}


def test_a_look_with_other_rules_hides_nothing(root: Path) -> None:
    (root / "new").write_text("1")
    main(["status", "--exclude", "new"])
    main(["push", "--dry-run", "--exclude", "new"])
    assert quick_push(str(root), only_look=True) is None


def test_files_that_changed_a_moment_before_the_look_are_looked_at_again(root: Path) -> None:
    index = Index(find().state / "index.sqlite")
    index.set_facts(looked_ns=str((root / "a.py").stat().st_ctime_ns + 10**9))
    index.close()
    assert quick_push(str(root), only_look=True) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("HAI_TOKEN", "wrong", id="a token that is none"),
        pytest.param("HAI_SERVER", "127.0.0.1:1", id="another server"),
        pytest.param("HAI_PROFILE", "other", id="another profile"),
        pytest.param("XDG_DATA_HOME", "/nowhere", id="another memory"),
    ],
)
def test_other_surroundings_are_left_to_the_whole_program(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert quick_push(str(root), only_look=True) is None


def test_the_token_of_a_profile_is_read_where_it_stands(
    root: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HAI_SERVER")
    monkeypatch.delenv("HAI_TOKEN")
    save(Profile("lab", profile.server, profile.token))
    push()
    assert quick_push(str(root), only_look=True) is not None
    save(Profile("lab", profile.server, "another"))
    assert quick_push(str(root), only_look=True) is None


def test_another_laptops_revision_is_seen(root: Path) -> None:
    found = find()
    other = root.parent / "other"
    other.mkdir()
    env = {**os.environ, "XDG_DATA_HOME": str(root.parent / "other-data")}
    for words in (("init", found.name), ("pull",), ("push",)):
        (other / "more").write_text("1")
        command = [sys.executable, "-m", "hai_sync.cli.main", *words]
        subprocess.run(command, cwd=other, env=env, check=True, capture_output=True)
    assert quick_push(str(root), only_look=True) is None


def test_while_another_process_syncs_nothing_is_said(root: Path, held) -> None:
    with held(find().state):
        assert quick_push(str(root), only_look=True) is None


def test_a_profile_named_on_purpose_is_not_the_one_of_the_next_push(
    root: Path, profile: Profile
) -> None:
    save(Profile("lab", profile.server, profile.token), make_current=False)
    push()
    assert main(["push", "--profile", "lab", "-q"]) == 0
    assert quick_push(str(root), only_look=True) is not None


def test_the_filter_of_a_push_without_options_is_the_one_that_is_expected() -> None:
    assert Filter().fingerprint() == DEFAULT_FILTER
    assert (RULES, OWN) == (ignore.FILES, names.OWN)


def test_it_loads_next_to_nothing() -> None:
    script = "import sys, hai_sync.cli.main, hai_sync.quick.syncing, hai_sync.quick.pushing; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    heavy = {"click", "grpc", "google", "asyncio", "dataclasses", "typing", "pathlib", "json"}
    assert not heavy & set(done.stdout.split()) - set(_bare())


def _bare() -> list[str]:
    """What Python itself loads here; an installation may do as it likes at its start."""
    script = "import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return done.stdout.split()


def test_a_refused_call_has_no_answer(profile: Profile) -> None:
    name = b"\x0a\x07no-such"
    assert _answers(profile.server, GET, [name], profile.token) == []
    assert _answers(profile.server, GET, [name], "wrong") == []
    assert _answers(profile.server, "/no.such/Call", [b""], profile.token) == []


def _answers(
    server: str, method: str = GET, messages: Sequence[bytes] = (b"",), token: str = ""
) -> list[bytes]:
    with closing(Line(server, token, None, 5.0)) as line:
        line.call(method, messages)
        return line.answers()


@pytest.fixture
def liar() -> Iterator[Callable[[bytes], str]]:
    """A server that says the same to everybody."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(words: bytes) -> str:
        def talk() -> None:
            with listener.accept()[0] as client:
                client.recv(1 << 16)
                client.sendall(words)

        threading.Thread(target=talk, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    with listener:
        yield serve


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
        pytest.param(_frame(0, 0, 1, b"\0\0\0\0\1x"), id="no end"),
        pytest.param(_frame(0, 1, 1, b"\1\0\0\0\1x"), id="compressed"),
        pytest.param(_frame(0, 1, 1, b"\0\0\0\0\2x"), id="less than it says"),
        pytest.param(_frame(0, 9, 1, b"\0\0\0\0\1x"), id="padded"),
        pytest.param(_frame(1, 5, 1, b"\x88"), id="no message"),
        pytest.param(_frame(3, 0, 1, b"\0\0\0\2"), id="reset"),
        pytest.param(_frame(7, 0, 0, b"\0" * 8), id="going away"),
    ],
)
def test_a_server_that_speaks_nonsense_has_no_answer(liar, words: bytes) -> None:
    with suppress(OSError):
        assert _answers(liar(words)) == []


def test_an_answer_in_parts_is_one(liar) -> None:
    words = _frame(4, 0, 0, b"") + _frame(0, 0, 1, b"\0\0\0") + _frame(0, 1, 1, b"\0\2hi")
    assert _answers(liar(words)) == [b"hi"]


def test_it_knows_the_variables_that_choose_server_and_token() -> None:
    """They are written twice, since importing the client takes longer than a quick push."""
    assert asking._TOKENS == profiles.TOKEN_VARIABLES
    assert {*profiles.SERVER_VARIABLES, profiles.PROFILE_VARIABLE} <= {*surroundings._CHOICE}
