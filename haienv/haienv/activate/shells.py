"""Generates the script that a shell evaluates to activate an environment. Pure.

The script saves each variable that it changes (whether it was set and exported, and its value), and `deactivate`
restores them. Activating another environment deactivates the first one. All values are quoted as literals, because
other users may have written them. The script works under `set -eu`.
"""

from __future__ import annotations

from haienv.activate.activation import Activation

SHELLS = ("bash", "zsh", "fish")


def activation_script(shell: str, activation: Activation) -> str:
    """Return the script for a shell. If it changes, raise the number in haienv/bin, because shells cache the script."""
    return _fish_script(activation) if shell == "fish" else _posix_script(shell, activation)


def quote(value: str) -> str:
    """Return a string literal of bash and zsh."""
    return "'" + value.replace("'", "'\\''") + "'"


def quote_fish(value: str) -> str:
    """Return a string literal of fish."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _changed_variables(activation: Activation) -> list[str]:
    """Return the names of all variables that activation changes."""
    fixed = ("PATH", "PYTHONPATH", "PYTHONHOME")
    return list(
        dict.fromkeys([*fixed, *activation.path_lists(), *sorted(activation.replaced_variables())])
    )


_SAVE = """if [ -n "${{{v}+x}}" ]; then
  _HAIENV_OLD_{v}="${v}"
  {exported}
    {its_own}) _HAIENV_HAD_{v}=its_own ;;
    *x*) _HAIENV_HAD_{v}=exported ;;
    *) _HAIENV_HAD_{v}=set ;;
  esac
else
  _HAIENV_HAD_{v}=no
fi
"""
_RESTORE = """  case "$_HAIENV_HAD_{v}" in
    exported) {v}="$_HAIENV_OLD_{v}"; export {v} ;;
    set) {v}="$_HAIENV_OLD_{v}"; {hide} {v} ;;
    its_own) ;;
    *) unset {v} ;;
  esac
  unset _HAIENV_OLD_{v} _HAIENV_HAD_{v}
"""
_SET = """if [ "$_HAIENV_HAD_{v}" = its_own ]; then
  printf '%s\\n' 'haienv: this shell keeps its own {v}' >&2
else
  export {v}={value}
fi
"""
_EXPORTED = {
    "bash": 'case "${{{v}@a}}" in',
    "zsh": 'case "${{(t){v}}}" in',  # among the attributes, only `export` contains an x
}
_READ_ONLY = {
    "bash": "*r*",  # setting a read-only variable such as UID would end the script
    "zsh": "*readonly*|array*|association*|integer*special*",  # setting UID would change the user
}
_HIDE = {"bash": "export -n", "zsh": "typeset -g +x"}
_OLD_DEACTIVATE = {
    "bash": '"$(declare -f deactivate || :)"',
    "zsh": '"$(functions deactivate || :)"',
}
_DEACTIVATE_PREVIOUS = {
    "bash": "if declare -F _haienv_leave >/dev/null; then _haienv_leave; fi\n",
    "zsh": 'if [ -n "${functions[_haienv_leave]+x}" ]; then _haienv_leave; fi\n',
}


def _posix_script(shell: str, activation: Activation) -> str:
    """Return the script for bash or zsh: save variables, define `deactivate`, and set variables."""
    names = [*_changed_variables(activation), "PS1"]
    save = "".join(
        _SAVE.format(v=v, exported=_EXPORTED[shell].format(v=v), its_own=_READ_ONLY[shell])
        for v in names
    )
    restore = "".join(_RESTORE.format(v=v, hide=_HIDE[shell]) for v in names)
    return (
        _DEACTIVATE_PREVIOUS[shell]
        + save
        + f"_HAIENV_DEACTIVATE={_OLD_DEACTIVATE[shell]}\n"
        + f"_haienv_leave() {{\n{restore}{_RESTORE_END}}}\n"
        + "deactivate() { _haienv_leave; }\n"
        + _activate_posix(activation)
    )


_RESTORE_END = """  unset -f deactivate _haienv_leave
  if [ -n "$_HAIENV_DEACTIVATE" ]; then eval "$_HAIENV_DEACTIVATE"; fi
  unset _HAIENV_DEACTIVATE
  hash -r
"""


def _activate_posix(activation: Activation) -> str:
    """Return the part of the script that sets variables and the prompt."""
    replaced_variables = "".join(
        _SET.format(v=n, value=quote(v)) for n, v in activation.replaced_variables().items()
    )
    lines = [
        f'export {n}={quote(":".join(directories))}"${{{n}:+:${n}}}"'
        for n, directories in activation.path_lists().items()
    ]
    lines.append("unset PYTHONHOME")
    lines.append(f'if [ -n "${{PS1+x}}" ]; then PS1={quote(activation.prompt)}"$PS1"; fi')
    return (
        replaced_variables + "\n".join(lines) + f"\n{_print_note(quote(activation.note))}hash -r\n"
    )


def _print_note(note: str) -> str:
    """Return a command that prints a quoted note to standard error; empty for an empty note."""
    return "" if note == "''" else f"printf '%s\\n' {note} >&2\n"


_FISH_SAVE = """if set -qg {v}
    set -g _HAIENV_OLD_{v} ${v}
    set -qgx {v}; and set -g _HAIENV_HAD_{v} -gx; or set -g _HAIENV_HAD_{v} -gu
else
    set -g _HAIENV_HAD_{v} no
end
"""
_FISH_RESTORE = """    if test "$_HAIENV_HAD_{v}" = no
        set -eg {v}
    else
        set -eg {v}
        set $_HAIENV_HAD_{v} {v} $_HAIENV_OLD_{v}
    end
    set -eg _HAIENV_OLD_{v}
    set -eg _HAIENV_HAD_{v}
"""
_FISH_FUNCTIONS = """for each in deactivate fish_prompt
    functions -q $each; and functions -c $each _haienv_old_$each
end
function deactivate
    _haienv_leave
end
function fish_prompt
    set -l last $status
    printf '%s' {prompt}
    if functions -q _haienv_old_fish_prompt
        echo "exit $last" | source
        _haienv_old_fish_prompt
    end
end
"""
_FISH_LAST = """    for each in deactivate fish_prompt
        functions -e $each
        if functions -q _haienv_old_$each
            functions -c _haienv_old_$each $each
            functions -e _haienv_old_$each
        end
    end
    functions -e _haienv_leave
"""


def _fish_script(activation: Activation) -> str:
    """Return the script for fish: save variables, define `deactivate` and the prompt, and set variables."""
    names = _changed_variables(activation)
    replaced_variables = "".join(
        f"set -gx {n} {quote_fish(v)}\n" for n, v in activation.replaced_variables().items()
    )
    path_lists = "".join(
        f"set -gx {n} {' '.join(map(quote_fish, directories))} ${n}\n"
        for n, directories in activation.path_lists().items()
    )
    return (
        "functions -q _haienv_leave; and _haienv_leave\n"
        + "".join(_FISH_SAVE.format(v=name) for name in names)
        + "function _haienv_leave\n"
        + "".join(_FISH_RESTORE.format(v=name) for name in names)
        + f"{_FISH_LAST}end\n"
        + _FISH_FUNCTIONS.format(prompt=quote_fish(activation.prompt))
        + f"{replaced_variables}{path_lists}"
        + _print_note(quote_fish(activation.note))
        + "set -qg PYTHONHOME; and set -eg PYTHONHOME; or true\n"
    )
