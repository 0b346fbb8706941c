"""`haienv verify`, `doctor`, `history`: integrity of files, broken environments, past changes."""

from __future__ import annotations

import click

from haienv.cli.common import EnvCommand, Settings, complete_names, find_environment
from haienv.cli.view import aligned
from haienv.names import check_name
from haienv.store.layout import home


@click.command("verify", cls=EnvCommand)
@click.argument("name", default=".", shell_complete=complete_names)
@click.option("-u", "--user", help="Owner of the environment.")
@click.pass_obj
def verify(settings: Settings, name: str, user: str | None) -> int:
    """Compare the files of an environment with those that were installed. The exit code is 1 if they differ."""
    from haienv.layers.integrity import differences

    _, found = find_environment(name, user)
    differences_found = differences(found)
    document = [{"what": each.kind, "path": each.path} for each in differences_found]
    settings.answer(
        document, "\n".join(f"{each.kind:<8} {each.path}" for each in differences_found)
    )
    settings.note(
        f"{found}: {len(differences_found)} files differ"
        if differences_found
        else f"{found} is intact"
    )
    return 1 if differences_found else 0


@click.command("doctor", cls=EnvCommand)
@click.option("--fix", is_flag=True, help="Repair what can be repaired.")
@click.pass_obj
def doctor(settings: Settings, fix: bool) -> int:
    """Find what is broken or left over in your environments. The exit code is 1 if a problem remains."""
    from haienv.doctor import findings, repair

    here = home()
    found = findings(here)
    repaired = repair(here, found) if fix and found else []
    remaining = [each for each in found if each not in repaired]
    document = [
        {
            "what": each.problem,
            "path": each.path,
            "hint": each.hint,
            "fixable": each.repair is not None,
            "fixed": each in repaired,
        }
        for each in found
    ]
    rows = [
        (
            "fixed" if each in repaired else "found",
            each.problem,
            each.path,
            each.hint or "haienv doctor --fix",
        )
        for each in found
    ]
    settings.answer(document, aligned(rows) if rows else "")
    if not found:
        settings.note("all is well")
    return 1 if remaining else 0


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

    here = home()
    all_changes = read_changes(here, check_name(user, "user") if user else here.user)
    found = [each for each in all_changes if name in ("", each.name)]
    rows = [(c.time, c.what, c.name, c.layer, f"uid {c.uid}", c.host) for c in found]
    settings.answer([asdict(each) for each in found], aligned(rows) if rows else "")
    return 0
