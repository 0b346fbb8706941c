"""Activation and deactivation restore all variables, in each shell and in any order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haienv.activate.activation import Activation
from haienv.activate.shells import SHELLS, activation_script, quote, quote_fish

NAMES = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "PS1",
    "VIRTUAL_ENV",
    "HF_ENV_NAME",
    "JUPYTER_PATH",
    "EXTRA",
    "SOME_PATH",
)
values = st.text(" :=/.'\"$`\\!*?[]{}()<>|&;~#%@^-ab\té", max_size=12)
directories = st.lists(values.map(lambda v: "/" + v.replace(":", "").replace("\t", "")), max_size=3)
before = st.text(
    " :=/.'\"$`\\!*?[]{}()<>|&;~#%@^-ab\t\né", max_size=12
)  # of shells: a value may have several lines
starts = st.fixed_dictionaries({
    name: st.tuples(st.sampled_from(["set", "exported"] if name == "PATH" else ["no", "set", "exported"]), before)
    for name in NAMES
})  # fmt: skip
activations = st.builds(
    lambda name, path, search, extra: Activation(
        name=name, owner="ann", lock_hash="0" * 64, prefix=f"/x/{name}", path=("/b", *path),
        search=tuple(search), variables=extra, prompt=f"[{name}] ", jupyter=tuple(search),
    ),
    st.sampled_from(["one", "two"]),
    directories,
    directories,
    st.dictionaries(st.sampled_from(["EXTRA", "SOME_PATH", "MORE", "JUPYTER_PATH"]), values),
)  # fmt: skip
sequences = st.lists(st.one_of(st.none(), activations), min_size=1, max_size=4)

_DUMP = {
    "bash": """dump() { for n in {names}; do
  if [ -n "${{!n+x}}" ]; then d="$(declare -p "$n")"; d="${{d#declare -}}"
    case "${{d%% *}}" in *x*) s=exported ;; *) s=set ;; esac
    printf '%s\\0%s\\0%s\\0' "$n" "$s" "${{!n}}"
  else printf '%s\\0no\\0\\0' "$n"; fi; done
  declare -F | while read -r line; do case "$line" in *dump*) ;; *) printf 'function\\0%s\\0\\0' "$line" ;; esac; done
  for n in "${{!_HAIENV@}}"; do printf 'left\\0%s\\0\\0' "$n"; done; }}
""",
    "zsh": """dump() {{ for n in {names}; do
  if [ -n "${{(P)n+x}}" ]; then case "${{(Pt)n}}" in *export*) s=exported ;; *) s=set ;; esac
    printf '%s\\0%s\\0%s\\0' "$n" "$s" "${{(P)n}}"
  else printf '%s\\0no\\0\\0' "$n"; fi; done
  for n in ${{(ok)functions}}; do if [ "$n" != dump ]; then printf 'function\\0%s\\0\\0' "$n"; fi; done
  for n in ${{(M)${{(k)parameters}}:#_HAIENV*}}; do printf 'left\\0%s\\0\\0' "$n"; done; }}
""",
    "fish": """function dump; for n in {names}
  if set -qgx $n; printf '%s\\0exported\\0%s\\0' $n (string join -- \\x1f $$n | string collect -N -a)
  else if set -qg $n; printf '%s\\0set\\0%s\\0' $n (string join -- \\x1f $$n | string collect -N -a)
  else; printf '%s\\0no\\0\\0' $n; end; end
  for n in (functions -a -n)
  contains $n deactivate _haienv_leave _haienv_old_deactivate; and printf 'function\\0%s\\0\\0' $n; end
  set -gn | string match '_HAIENV*' | while read n; printf 'left\\0%s\\0\\0' $n; end; end
""",
}


def program(shell: str, start: Mapping[str, Any], sequence: Sequence[Activation | None]) -> str:
    """Set variables and dump them; activate and deactivate; dump them again."""
    lines = [
        _DUMP[shell]
        .replace("{names}", " ".join((*NAMES, "MORE")))
        .replace("{{", "{")
        .replace("}}", "}")
    ]
    if shell != "fish":
        lines.append("set -eu")
    lines += [_set(shell, name, *state) for name, state in start.items()]
    lines += ["dump", "printf '=\\0=\\0=\\0'"]
    active = False
    for step in sequence:
        if step is not None:
            lines.append(activation_script(shell, step))
        elif active:
            lines.append("deactivate")
        active = step is not None
    lines += ["deactivate"] if active else []
    return "\n".join([*lines, "dump", ""])


def _set(shell: str, name: str, state: str, value: str) -> str:
    if shell == "fish":
        scope = {"no": "-eg", "set": "-gu", "exported": "-gx"}[state]
        return f"set {scope} {name}" + ("" if state == "no" else f" {quote_fish(value)}")
    hide = "export -n" if shell == "bash" else "typeset -g +x"
    if state == "no":
        return f"unset {name}"
    return f"{name}={quote(value)}; {'export' if state == 'exported' else hide} {name}"


def parse_dumps(output: bytes) -> tuple[list[str], list[str]]:
    """Return the variables before and after."""
    fields = output.decode().split("\0")[:-1]
    triples = ["\0".join(fields[i : i + 3]) for i in range(0, len(fields), 3)]
    middle = triples.index("=\0=\0=")
    return triples[:middle], triples[middle + 1 :]


@pytest.mark.parametrize("shell", SHELLS)
def test_deactivate_restores_everything(run_shell: Any, shell: str) -> None:
    @settings(max_examples=25 if shell == "fish" else 60, deadline=None,
              suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
    @given(starts, sequences)
    def check(start: Mapping[str, Any], sequence: Sequence[Activation | None]) -> None:
        done = run_shell(shell, program(shell, start, sequence))
        assert done.stderr == b""
        before, after = parse_dumps(done.stdout)
        assert after == before

    check()


@pytest.mark.parametrize("shell", SHELLS)
def test_values_are_passed_literally(run_shell: Any, shell: str) -> None:
    @settings(max_examples=15 if shell == "fish" else 40, deadline=None)
    @given(activations)
    def check(entered: Activation) -> None:
        python = "import os; print(ascii(sorted(os.environ.items())))"
        run = f"{{}} -I -c {quote(python)}".format(sys.executable)
        done = run_shell(shell, f"{activation_script(shell, entered)}\n{run}\n")
        environ = dict(eval_pairs(done.stdout.decode()))
        for name, value in entered.replaced_variables().items():
            mine = environ[name] == value or (entered.jupyter and name == "JUPYTER_PATH")
            assert mine or (shell == "fish" and "PATH" in name)
        if shell != "fish":
            assert environ.get("JUPYTER_PATH", "") == entered.apply_to({}).get("JUPYTER_PATH", "")
        assert environ["PATH"].startswith("/b:")

    check()


def eval_pairs(text: str) -> list[tuple[str, str]]:
    from ast import literal_eval

    return list(literal_eval(text))


@pytest.mark.parametrize("shell", SHELLS)
def test_source_haienv_activates_switches_and_deactivates(
    haienv: Any, run_shell: Any, shell: str
) -> None:
    haienv.ok("create base --no_extend fast==1.0 tool --extra-environment", "WITH=a b:c=d'e\"")
    haienv.ok("create top --extend base plain")
    command = Path(sys.executable).parent / ("haienv.fish" if shell == "fish" else "haienv")
    source = f"source '{command}'"
    inside = 'python -c \'import fast, os; print(fast.VERSION, os.environ["WITH"], os.environ["HF_ENV_NAME"])\''
    text = f"{source} top\n{inside}\ntool plain\n{source} 'base[ann]'\n{inside}\ndeactivate\necho \"$HF_ENV_NAME\".\n"
    done = run_shell(shell, text, HAIENV_HOME=str(haienv.home.root), HAIENV_USER="ann")
    assert done.stdout.decode() == ("1.0 a b:c=d'e\" top\nplain 2.0\n1.0 a b:c=d'e\" base\n.\n"), (
        done.stderr
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_an_unknown_name_changes_nothing(haienv: Any, run_shell: Any, shell: str) -> None:
    command = Path(sys.executable).parent / ("haienv.fish" if shell == "fish" else "haienv")
    status = "$status" if shell == "fish" else "$?"
    text = f"source '{command}' nothing\necho {status}"
    done = run_shell(shell, text, HAIENV_HOME=str(haienv.home.root))
    assert done.stdout.decode().strip() != "0"
    assert "there is no environment nothing" in done.stderr.decode()


@pytest.mark.parametrize(("shell", "read_only"), [("bash", "UID"), ("bash", "MINE"), ("zsh", "UID"),
                                                ("zsh", "path"), ("zsh", "status")])  # fmt: skip
def test_read_only_variables_keep_their_values(run_shell: Any, shell: str, read_only: str) -> None:
    """Shells have read-only variables, users may define some, and setting UID in zsh would change the user."""
    more = {read_only: "7", "OTHER": "x"}
    entered = Activation("one", "ann", "0" * 64, "/x", ("/b",), (), more, "[one] ")
    show = f'echo "${read_only} $OTHER $HF_ENV_NAME"'
    text = f"readonly MINE=1\n{show}\n{activation_script(shell, entered)}\n{show}\ndeactivate\n{show}\n"
    done = run_shell(shell, text)
    before, inside, after = done.stdout.decode().splitlines()
    assert inside.endswith(f"{before.strip()} x one")
    assert after == before
    assert done.stderr.decode() == f"haienv: this shell keeps its own {read_only}\n"


@pytest.mark.parametrize("shell", ["dash", "busybox"])
def test_unsupported_shells_print_an_error(shell: str, tmp_path: Path) -> None:
    """These shells source the file without arguments, and with $0 of the script."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = Path(sys.executable).parent / "haienv"
    (tmp_path / "job.sh").write_text(f". '{command}' mine\necho $? going on\n")
    command_line = [shell, "sh"] if shell == "busybox" else [shell]
    done = subprocess.run([*command_line, tmp_path / "job.sh"], capture_output=True, text=True)
    assert done.stdout == "2 going on\n"
    assert "haienv run NAME -- PROGRAM" in done.stderr


def test_an_existing_deactivate_is_restored(run_shell: Any) -> None:
    entered = Activation("one", "ann", "0" * 64, "/x", ("/b",), (), {}, "[one] ")
    for shell, define in (("bash", "deactivate() { echo old; }"), ("zsh", "deactivate() { echo old; }"),
                          ("fish", "function deactivate; echo old; end")):  # fmt: skip
        done = run_shell(
            shell, f"{define}\n{activation_script(shell, entered)}\ndeactivate\ndeactivate\n"
        )
        assert done.stdout == b"old\n", shell


@pytest.mark.parametrize("shell", SHELLS)
def test_haienv_shell_activates_after_startup_files(
    haienv: Any, tmp_path: Path, shell: str
) -> None:
    """Directories that start-up files add to PATH come after those of the environment."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    haienv.ok("create one --no_extend tool")
    (tmp_path / ".config" / "fish").mkdir(parents=True)
    (tmp_path / ".bashrc").write_text("export PATH=/first:$PATH\n")
    (tmp_path / ".config" / "fish" / "config.fish").write_text("set -gx PATH /first $PATH\n")
    variables = {"HOME": str(tmp_path), "SHELL": program, "TERM": "dumb", "PS1": "> "}
    variables["XDG_CONFIG_HOME"] = str(tmp_path / ".config")
    script = 'echo "$HF_ENV_NAME" "$_HAIENV_ENTER"\ncommand -v tool\nexit 3\n'
    done = subprocess.run([sys.executable, "-m", "haienv", "shell", "one"], input=script, text=True,
                          capture_output=True, env={**os.environ, **variables}, start_new_session=True)  # fmt: skip
    tool = haienv.get("one").directory / "current" / "bin" / "tool"
    assert (done.returncode, done.stdout.split("\n")) == (3, ["one ", str(tool), ""]), done.stderr
