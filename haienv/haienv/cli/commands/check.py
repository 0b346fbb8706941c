"""`haienv verify`, `doctor`, `gc`: are files what they should be, and is there anything that should not be?"""

from __future__ import annotations

import click

from haienv.cli.frame import EnvCommand, Settings, busy_layers, environment, names, sure
from haienv.cli.view import aligned, human
from haienv.layout import home


@click.command("verify", cls=EnvCommand)
@click.argument("name", default=".", shell_complete=names)
@click.option("-u", "--user", help="Whose it is.")
@click.pass_obj
def verify(settings: Settings, name: str, user: str | None) -> int:
    """Compare the files of an environment with what was installed. The exit code is 1 if they differ."""
    from haienv.integrity import differences

    _, found = environment(name, user)
    different = differences(found)
    document = [{"what": each.what, "path": each.path} for each in different]
    settings.answer(document, "\n".join(f"{each.what:<8} {each.path}" for each in different))
    settings.note(f"{found}: {len(different)} files differ" if different else f"{found} is intact")
    return 1 if different else 0


@click.command("doctor", cls=EnvCommand)
@click.option("--fix", is_flag=True, help="Mend what can be mended.")
@click.pass_obj
def doctor(settings: Settings, fix: bool) -> int:
    """Find what is broken or left over among your environments. The exit code is 1 if something stays."""
    from haienv import hygiene

    here = home()
    found = hygiene.findings(here)
    mended = hygiene.mend(here, found) if fix and found else []
    left = [each for each in found if each not in mended]
    document = [
        {
            "what": each.what,
            "path": each.path,
            "hint": each.hint,
            "fixable": each.mend is not None,
            "fixed": each in mended,
        }
        for each in found
    ]
    rows = [
        ("mended" if each in mended else "found", each.what, each.path, _hint(each))
        for each in found
    ]
    settings.answer(document, aligned(rows) if rows else "")
    if not found:
        settings.note("all is well")
    return 1 if left else 0


def _hint(each: object) -> str:
    from haienv.hygiene import Finding

    assert isinstance(each, Finding)
    return each.hint or "haienv doctor --fix"


@click.command("gc", cls=EnvCommand)
@click.option("--days", default=7.0, show_default=True, help="Since when nothing has used it.")
@click.option("--cache", is_flag=True, help="What the cache of wheels no longer needs, too.")
@click.option("--dry-run", is_flag=True, help="Show it only.")
@click.option("--force", is_flag=True, help="Even if no server tells what tasks use.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def gc(settings: Settings, days: float, cache: bool, dry_run: bool, force: bool, yes: bool) -> int:
    """Delete layers that no environment has had for some days.

    What programs of tasks run in stays. The layer before the last change is kept for --rollback.
    """
    from haienv.backends.uv import Uv
    from haienv.garbage import collect, garbage

    here = home()
    busy = busy_layers(here, force)
    every = garbage(here, days)
    found = [each for each in every if each.path.name not in busy]
    kept = [str(each.path) for each in every if each.path.name in busy]
    size = sum(each.size_bytes for each in found)
    document = [{"path": str(g.path), "size_bytes": g.size_bytes, "days": g.days} for g in found]
    rows = [(str(g.path), human(g.size_bytes), f"{g.days:.0f} days") for g in found]
    rows += [(path, "kept", "programs of tasks run in it") for path in kept]
    answer = {"layers": document, "size_bytes": size, "in_use": kept}
    settings.answer(answer, aligned(rows) if rows else "")
    if not dry_run and found:
        sure(f"Delete {len(found)} layers?", yes)
        collect(here, found)
    if not dry_run and cache:
        Uv(here).prune()
    settings.note(f"{human(size)} {'would be' if dry_run else 'are'} free")
    return 0
