"""The commands run, pip, config, verify, doctor, gc and kernel; set_env and get_envs; projects in place."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hai.v1.environment_pb2 import Environment
from haienv.activate.activation import compute_activation
from haienv.cli import main as cli
from haienv.cluster import _document
from haienv.layers.bytecode import compile_modules

HERE = [sys.executable, "-m", "haienv"]


def test_run_passes_arguments_variables_and_the_exit_code(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast==1.0 --extra-environment", "A=b c")
    program = "import os, sys, fast; print(os.environ['A'], sys.argv[1:]); sys.exit(7)"
    done = subprocess.run([*HERE, "run", "base", "--", "python", "-c", program, "--json", "a b", "$x"],
                          capture_output=True, text=True)  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "b c ['--json', 'a b', '$x']\n")
    assert haienv("run base -- no-such-program").code == 3


def test_settings_of_parents_are_inherited(haienv: Any) -> None:
    haienv.ok("create base --no_extend --extra-search-dir '/b dir' --extra-search-bin-dir /b/bin "
              "--extra-environment A=base --extra-environment B=base")  # fmt: skip
    haienv.ok("create top --extend base --extra-search-dir /t --extra-environment A=top")
    done = subprocess.run([*HERE, "run", "top", "--", "env", "-0"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": "/was"})  # fmt: skip
    environ = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    top, base = haienv.get("top").path, haienv.get("base").path
    assert (environ["A"], environ["B"], environ["PYTHONPATH"]) == ("top", "base", "/t:/b dir:/was")
    assert environ["PATH"].startswith(f"{top}/bin:{base}/bin:/b/bin:")
    assert environ["HF_ENV_LOCK"] == haienv.get("top").layer.lock_hash


def test_jupyter_finds_files_of_parents(haienv: Any, tmp_path: Path) -> None:
    """Each layer has its own prefix, and Jupyter itself searches only the prefix of its Python."""
    haienv.ok("create base --no_extend")
    haienv.ok("create none --extend base")
    haienv.ok("create top --extend none")
    subprocess.run(["uv", "venv", "-q", tmp_path / "venv"], check=True)
    haienv.monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    haienv.ok("create outside")
    base, top, outside = (haienv.get(name).path for name in ("base", "top", "outside"))
    assert "JUPYTER_PATH" not in compute_activation(haienv.home, haienv.get("top")).apply_to({})
    (base / "etc" / "jupyter").mkdir(parents=True)
    (tmp_path / "venv" / "share" / "jupyter").mkdir(parents=True)
    for name, prefixes in (
        ("base", []),
        ("top", [top, base]),
        ("outside", [outside, tmp_path / "venv"]),
    ):
        environ = compute_activation(haienv.home, haienv.get(name)).apply_to(
            {"JUPYTER_PATH": "/was"}
        )
        assert environ["JUPYTER_PATH"] == ":".join(
            [*(f"{p}/share/jupyter" for p in prefixes), "/was"]
        )
        config = ":".join(f"{prefix}/etc/jupyter" for prefix in prefixes)
        assert environ.get("JUPYTER_CONFIG_PATH", "") == config


def test_set_env_and_get_envs(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast==1.0 --extra-environment A=b")
    haienv.ok("create top --extend base plain")
    program = """
import os, haienv
entered = haienv.set_env("top[ann]")
import fast, plain
print(fast.VERSION, plain.VERSION, os.environ["A"], os.environ["HF_ENV_OWNER"], entered.name)
print([row[:2] + row[3:] for row in haienv.get_envs()])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    version = ".".join(map(str, sys.version_info[:3]))
    assert done.stdout.splitlines() == [
        "1.0 2.0 b ann top",
        str([("ann", "base", "False", "", version), ("ann", "top", "True", "base", version)]),
    ], done.stderr


def test_set_env_refuses_another_python(haienv: Any, other_python: str) -> None:
    haienv.ok(f"create old --no_extend -p {other_python}")
    program = "import haienv\ntry: haienv.set_env('old')\nexcept Exception as error: print(error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "is for Python" in done.stdout


def test_pip_in_an_environment_runs_haienv(haienv: Any) -> None:
    haienv.ok("create one --no_extend")
    haienv.monkeypatch.setenv("HF_ENV_NAME", "one")
    haienv.monkeypatch.setenv("HF_ENV_OWNER", "ann")
    haienv.ok("pip install fast==1.0 tool")
    assert haienv.ok("pip freeze").out == "fast==1.0\ntool==1.0\n"
    haienv.ok("pip uninstall -y tool")
    assert haienv.ok("pip list").out == "fast==1.0\n"
    assert haienv("pip download x").code == 2


@pytest.mark.parametrize("arguments", ["-r {file}", "-r{file}", "--requirement={file}", "tool -i x://y",
                                   "tool --index-url=x://y"])  # fmt: skip
def test_options_of_pip_are_translated(haienv: Any, tmp_path: Path, arguments: str) -> None:
    (tmp_path / "a=b.txt").write_text("tool\n")
    haienv.ok("create one --no_extend")
    haienv.monkeypatch.setenv("HF_ENV_NAME", "one")
    haienv.ok(f"pip install {arguments.format(file=tmp_path / 'a=b.txt')}")
    assert haienv.ok("pip freeze").out == "tool==1.0\n"
    assert "`haienv install --help`" in haienv("pip install --user tool").err


def test_config_commands(haienv: Any) -> None:
    haienv.ok("create one --no_extend")
    haienv.ok("config append one extra-environment A=1 B=x:y=z")
    haienv.ok("config append one extra-environment A=2")
    haienv.ok("config append one extra-search-dir /x /y /x")
    haienv.ok("config remove one extra-search-dir /x")
    haienv.ok("config set one description 'what it is for'")
    result = haienv.ok("config show one --json").json
    assert (result["extra-environment"], result["extra-search-dir"]) == (
        {"A": "2", "B": "x:y=z"},
        ["/y"],
    )
    haienv.ok("config clear one extra-environment")
    assert haienv.ok("config show one --json").json["extra-environment"] == {}
    for line in ("append one extra-search-dir relative", "append one extra-environment A",
                 "append one extra-environment 'A B=c'", "append one extra-search-bin-dir /a:/b",
                 "set one visibility all", "set one nonsense x"):  # fmt: skip
        assert haienv(f"config {line}").code == 2, line
    assert haienv("config remove one extra-environment A").code == 3


@pytest.mark.parametrize(
    ("script", "code", "after"),
    [
        pytest.param("s/b c/new/", 0, {"A": "new"}, id="another value"),
        pytest.param("s/search_dirs/dirs/", 2, {"A": "b c"}, id="a word that means nothing"),
        pytest.param("s/^A/PATH/", 2, {"A": "b c"}, id="a variable of ours"),
        pytest.param("s/=//", 2, {"A": "b c"}, id="not TOML"),
        pytest.param("", 0, {"A": "b c"}, id="nothing"),
    ],
)
def test_config_edit(haienv: Any, script: str, code: int, after: dict[str, str]) -> None:
    haienv.ok("create one --no_extend --extra-search-dir /x --extra-environment", "A=b c")
    assert haienv("config edit one").code == 2
    haienv.monkeypatch.setenv("EDITOR", f"sed -i '{script}'")
    haienv.monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert haienv("config edit one").code == code
    result = haienv.ok("config show one --json").json
    assert (result["extra-environment"], result["extra-search-dir"]) == (after, ["/x"])


def test_info_tasks_and_empty_lists(haienv: Any) -> None:
    haienv.ok("create one --no_extend")
    assert haienv.ok("info one --tasks --json").json["used_by"] == []
    assert "bob has no environments that you can see" in haienv.ok("list -u bob").err
    haienv.monkeypatch.setenv("HAIENV_HOME", "/a:/b")
    assert haienv("list").code == 2
    assert haienv.ok("--version").out.startswith("haienv, version ")


def test_verify_finds_changed_missing_and_added_files(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast tool")
    haienv.ok("verify one")
    site = haienv.get("one").sites[0]
    for path in (site, site / "fast", site / "fast" / "__init__.py", site / "tool"):
        path.chmod(0o755)
    (
        site / "fast" / "__init__.py"
    ).unlink()  # the old file is shared with the cache, so a new one replaces it
    (site / "fast" / "__init__.py").write_text("changed")
    (site / "tool" / "__init__.py").unlink()
    (site / "extra.py").write_text("")
    result = haienv("verify one --json")
    assert result.code == 1
    assert {(d["what"], Path(d["path"]).name) for d in result.json} == {
        ("changed", "__init__.py"), ("missing", "__init__.py"), ("added", "extra.py")
    }  # fmt: skip


def test_doctor_deletes_truncated_bytecode(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast --visibility public")
    (module,) = haienv.get("one").sites[0].glob("fast/__pycache__/*.pyc")
    module.chmod(0o644)
    module.write_bytes(module.read_bytes()[:-9])
    with pytest.raises(AssertionError, match="EOFError"):
        haienv.run("one", "import fast")
    result = haienv("doctor --json")
    assert (result.code, [each["path"] for each in result.json]) == (1, [str(module)])
    haienv.ok("doctor --fix")
    assert haienv.run("one", "import fast; print(fast.VERSION)") == "2.0"
    assert haienv.ok("doctor --json").json == []


def test_truncated_bytecode_is_not_kept(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast")
    found = haienv.get("one")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, usual[1]))  # longer writes are truncated
    try:
        compile_modules(found.path / "bin" / "python", found.sites[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert haienv.run("one", "import fast; print(fast.VERSION)") == "2.0"


@pytest.mark.parametrize("line", ["/../../x,,", "../" * 90 + "x,,", "x" * 200_000, '"x'])
def test_verify_accepts_any_record(haienv: Any, line: str) -> None:
    haienv.ok("create one --no_extend fast")
    site = haienv.get("one").sites[0]
    (record,) = site.glob("*.dist-info/RECORD")
    lines = record.read_text()
    for path in (site, record.parent):
        path.chmod(0o755)
    record.unlink()
    record.write_text(f"{line}\n{lines}")
    result = haienv("verify one --json")
    assert (result.code, result.json != []) == (1, True)


def test_gc_deletes_unused_layers(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast==1.0")
    haienv.ok("create top --extend one tool")
    first = haienv.get("one").path
    haienv.ok("install one fast==2.0")
    second = haienv.get("one").path
    haienv.ok("install one plain")
    haienv.ok("install one tool")
    assert haienv.ok("gc --json").json["layers"] == []
    assert [Path(g["path"]) for g in haienv.ok("gc --days 0 --dry-run --json").json["layers"]] == [
        second
    ]
    haienv.ok("gc --days 0 --yes")
    assert (first.exists(), second.exists()) == (True, False)
    haienv.ok("upgrade one --rollback")


def test_gc_keeps_layers_for_rollback(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast==1.0")
    haienv.ok("create top --extend base plain")
    first = haienv.get("base").path
    haienv.ok("install base tool")
    haienv.ok("upgrade top")
    haienv.ok("install base plain==1.0")
    haienv.ok("gc --days 0 --yes")
    assert first.is_dir()
    haienv.ok("upgrade top --rollback")
    assert haienv.run("top", "import fast; print(fast.VERSION)") == "1.0"


def test_rollback_needs_the_layers_of_parents(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast==1.0")
    haienv.ok("create top --extend base plain")
    haienv.ok("install base tool")
    haienv.ok("upgrade top")
    before = haienv.get("top").layer_id
    first = haienv.home.layer("ann", haienv.get("base").metadata.previous)
    first.rename(first.with_name("away"))
    refused = haienv("upgrade top --rollback")
    assert refused.code == 1
    assert "base[ann]" in refused.err
    assert haienv.get("top").layer_id == before


def test_a_kernel_runs_through_haienv(haienv: Any, make_wheel: Any, tmp_path: Path) -> None:
    haienv.monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    haienv.ok("create one --no_extend fast")
    assert haienv("kernel install one").code == 1
    haienv.ok(
        "install one --find-links",
        tmp_path / "wheels",
        make_wheel("ipykernel", "1.0").stem.split("-")[0],
    )
    haienv.ok("kernel install one")
    (spec,) = (tmp_path / "jupyter" / "kernels").glob("*/kernel.json")
    result = json.loads(spec.read_text())
    start = result["argv"].index("python")
    done = subprocess.run([*result["argv"][:start], "python", "-c", "import fast; print(fast.VERSION)"],
                          capture_output=True, text=True, env={**os.environ, **result["env"]})  # fmt: skip
    assert done.stdout == "2.0\n"
    haienv.ok("kernel remove one")
    assert not spec.exists()


def test_kernel_names_that_differ_in_case_only(
    haienv: Any, make_wheel: Any, tmp_path: Path
) -> None:
    haienv.monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    make_wheel("ipykernel", "1.0")
    for name in ("one", "One"):
        haienv.ok(f"create {name} --no_extend ipykernel --find-links", tmp_path / "wheels")
    haienv.ok("kernel install One")
    (spec,) = (tmp_path / "jupyter" / "kernels").glob("*/kernel.json")
    refused = haienv("kernel install one")
    assert (refused.code, "is that of One[ann]" in refused.err) == (1, True)
    assert haienv("kernel remove one").code == 3
    assert "One[ann]" in spec.read_text()
    haienv.ok("remove One --yes")
    haienv.ok("kernel install one")
    assert "one[ann]" in spec.read_text()


@pytest.mark.parametrize("arguments", [("create two --no_extend -e", "a:b"), ("install one -e", "\udcff"),
                                   ("config append one extra-environment", "A=\udcff")])  # fmt: skip
def test_unprintable_values_are_refused(haienv: Any, arguments: tuple[str, str]) -> None:
    """A colon separates directories; surrogates stand for bytes that are not UTF-8."""
    haienv.ok("create one --no_extend")
    assert haienv(*arguments).code == 2
    assert haienv.ok("list --names").out == "one\n"
    assert haienv.get("one").is_ready


def test_install_a_project_in_place(haienv: Any, tmp_path: Path) -> None:
    project = tmp_path / "a pr%j"
    (project / "inplace").mkdir(parents=True)
    (project / "inplace" / "__init__.py").write_text("VERSION = 1\n")
    (project / "pyproject.toml").write_text(BUILD)
    (project / "backend.py").write_text(BACKEND)
    haienv.ok("create one --no_extend -e", project)
    (project / "inplace" / "__init__.py").write_text("VERSION = 2\n")
    assert haienv.run("one", "import inplace, fast; print(inplace.VERSION)") == "2"
    assert haienv("export one", tmp_path / "one.tar").code == 1
    haienv.ok("install one tool")
    assert haienv.run("one", "import inplace, tool; print(inplace.VERSION)") == "2"
    project.rename(tmp_path / "elsewhere")  # the project cannot be resolved any more
    assert haienv("install one plain").code == 1
    haienv.ok("uninstall one inplace")
    assert haienv.ok("freeze one --json").json == {"tool": "1.0"}
    haienv.ok("install one plain")


def test_a_changed_project_in_place_is_installed_again(haienv: Any, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(BUILD)
    (tmp_path / "backend.py").write_text(BACKEND)
    haienv.ok("create one --no_extend -e", tmp_path)
    before = haienv.get("one").layer_id
    assert haienv.ok("install one -e", tmp_path).out == "nothing to change\n"
    assert haienv.get("one").layer_id == before
    (tmp_path / "pyproject.toml").write_text(f"{BUILD}[project.scripts]\nsay = 'inplace:say'\n")
    (tmp_path / "backend.py").write_text(BACKEND.replace("# scripts", SCRIPTS))
    assert haienv.ok("install one -e", tmp_path).out == "no other packages\n"
    assert (haienv.get("one").path / "bin" / "say").is_file()


def test_extras_of_a_project_in_place_can_change(haienv: Any, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(BUILD)
    (tmp_path / "backend.py").write_text(BACKEND)
    haienv.ok("create one --no_extend -e", f"{tmp_path}[more]")
    assert haienv.ok("freeze one --json").json == {"fast": "2.0", "inplace": "1", "tool": "1.0"}
    haienv.ok("install one -e", tmp_path)
    assert haienv.ok("freeze one --json").json == {"fast": "2.0", "inplace": "1"}
    haienv.ok("install one -e", f"{tmp_path}[more]")
    assert haienv.ok("uninstall one inplace").out.startswith("drop ")
    assert haienv.ok("freeze one --json").json == {}


BUILD = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
BUILD += '[project]\nname = "inplace"\nversion = "1"\ndependencies = ["fast"]\n'
BUILD += '[project.optional-dependencies]\nmore = ["tool"]\n'
BACKEND = """
import os, zipfile

META = "Metadata-Version: 2.1\\nName: inplace\\nVersion: 1\\nRequires-Dist: fast\\n"
META += "Provides-Extra: more\\nRequires-Dist: tool; extra == 'more'\\n"


def build_editable(directory, config_settings=None, metadata_directory=None):
    name = "inplace-1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("inplace.pth", os.path.dirname(os.path.abspath(__file__)) + "\\n")
        wheel.writestr("inplace-1.dist-info/METADATA", META)
        wheel.writestr("inplace-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\nRoot-Is-Purelib: true\\n")
        wheel.writestr("inplace-1.dist-info/RECORD", "")
        # scripts
    return name


build_wheel = build_editable
"""
SCRIPTS = 'wheel.writestr("inplace-1.dist-info/entry_points.txt", "[console_scripts]\\nsay = inplace:say\\n")'


def test_hai_env_is_haienv(haienv: Any) -> None:
    from hai_tui.cli.main import main

    assert main(["env", "create", "one", "--no_extend", "-q"]) == 0
    assert haienv.ok("list --names").out == "one\n"
    assert main(["env", "info", "nothing", "--json"]) == 3
    assert main(["env", "--nonsense"]) == 2


def test_missing_generated_modules_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "hai.v1.new_service_pb2"

    def fail(*_: object) -> int:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(cli, "_run", fail)
    assert cli.main(["list"]) == 1
    error_output = capsys.readouterr().err
    assert f"{name} was never generated" in error_output
    assert "bash scripts/setup" in error_output


def test_unknown_enum_values_of_a_newer_server() -> None:
    document = _document(Environment(name="base", owner="ada", state=99, visibility=98))  # type: ignore[arg-type]
    assert (document["state"], document["visibility"]) == ("UNKNOWN_99", "unknown_98")
