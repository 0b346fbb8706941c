"""Implements `haienv verify`, `doctor`, `history`: integrity of files, broken environments, past changes."""

from __future__ import annotations

import click

from haienv.cli.common import EnvCommand, Settings, complete_names, find_environment
from haienv.cli.view import align_columns
from haienv.names import check_name
from haienv.store.layout import Home


@click.command("verify", cls=EnvCommand)
@click.argument("name", default=".", shell_complete=complete_names)
@click.option("-u", "--user", help="Owner of the environment.")
@click.pass_obj
def verify(settings: Settings, name: str, user: str | None) -> int:
    """Compare the files of an environment with those that were installed. The exit code is 1 if they differ."""
    from haienv.layers.integrity import compare_environment

    _, environment = find_environment(name, user)
    differences = compare_environment(environment)
    document = [{"what": each.kind, "path": each.path} for each in differences]
    settings.print_result(
        document, "\n".join(f"{each.kind:<8} {each.path}" for each in differences)
    )
    settings.print_note(
        f"{environment}: {len(differences)} files differ"
        if differences
        else f"{environment} is intact"
    )
    return 1 if differences else 0


@click.command("doctor", cls=EnvCommand)
@click.option("--fix", is_flag=True, help="Repair what can be repaired.")
@click.pass_obj
def doctor(settings: Settings, fix: bool) -> int:
    """Find what is broken or left over in your environments. The exit code is 1 if a problem remains."""
    from haienv.doctor import find_problems, repair

    home = Home.from_environ()
    problems = find_problems(home)
    repaired = repair(home, problems) if fix and problems else []
    document = [
        {
            "what": each.description,
            "path": each.path,
            "hint": each.hint,
            "fixable": each.repair is not None,
            "fixed": each in repaired,
        }
        for each in problems
    ]
    rows = [
        (
            "fixed" if each in repaired else "found",
            each.description,
            each.path,
            each.hint or "haienv doctor --fix",
        )
        for each in problems
    ]
    settings.print_result(document, align_columns(rows) if rows else "")
    if not problems:
        settings.print_note("all is well")
    return 1 if len(repaired) < len(problems) else 0


@click.command("history", cls=EnvCommand)
@click.argument("name", default="", shell_complete=complete_names)
@click.option(
    "-u", "--user", help="Owner of the environments; only operators can read changes of others."
)
@click.pass_obj
def history(settings: Settings, name: str, user: str | None) -> int:
    """List changes to your environments (to NAME), oldest first: create, switch, configure, rename, remove."""
    from dataclasses import asdict

    from haienv.store.history import read_changes

    home = Home.from_environ()
    all_changes = read_changes(home, check_name(user, "user") if user else home.user)
    changes = [each for each in all_changes if name in ("", each.name)]
    rows = [(c.time, c.what, c.name, c.layer, f"uid {c.uid}", c.host) for c in changes]
    settings.print_result([asdict(each) for each in changes], align_columns(rows) if rows else "")
    return 0
