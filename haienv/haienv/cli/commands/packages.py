"""Implements `haienv install`, `uninstall`, `upgrade`, `rename`, and `pip` in an active environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from haienv.cli.common import (
    EnvCommand,
    Settings,
    complete_names,
    find_own_environment,
    index_options,
    make_installer,
    source_option,
    steps_document,
)
from haienv.cli.view import environment_document
from haienv.errors import Refused, UsageError
from haienv.hooks import run_hooks
from haienv.store.registry import Environment, find_children, find_current_parent, read_environment

if TYPE_CHECKING:
    from haienv.backends.uv import Uv
    from haienv.layers.base import Base
    from haienv.layers.build import BuildRequest
    from haienv.layers.plan import Step
    from haienv.store.layout import Home

_NAME = click.argument("name", shell_complete=complete_names)
_FORCE = click.option(
    "--force", is_flag=True, help="Allow other versions than compiled packages of a parent need."
)
_PIP_OPTIONS = {
    "-r": "--from",
    "--requirement": "--from",
    "-i": "--index",
    "--index-url": "--index",
}
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only show the plan.")


@click.command("install", cls=EnvCommand)
@_NAME
@click.argument("requirements", nargs=-1)
@source_option
@click.option("-e", "--editable", multiple=True, metavar="DIR", help="Install a project in place.")
@click.option("-U", "--upgrade", is_flag=True, help="Also upgrade installed packages.")
@_FORCE
@_DRY_RUN
@index_options
@click.pass_obj
def install(settings: Settings, /, name: str, **options: Any) -> int:
    """Add packages to an environment (`.`: the active one).

    Parents are never changed; their packages are used if the version fits. A new layer is built,
    and running programs keep the old one.
    """
    from haienv.requirements.files import collect_requirements
    from haienv.requirements.requirement_set import (
        RequirementSet,
        absolute_project,
        merge_projects,
        merge_requirements,
    )

    home, environment = find_own_environment(name)
    uv = make_installer(home, options)
    requested = RequirementSet(
        options["requirements"], tuple(map(absolute_project, options["editable"]))
    )
    requested = collect_requirements(requested, options["sources"], ())
    if requested.lock or not (requested.requirements or requested.editable):
        raise UsageError("nothing to install", "name packages, or --from a file that is not a lock")

    def add(request: BuildRequest) -> BuildRequest:
        requirements = merge_requirements(request.requirements, requested.requirements)
        editable = merge_projects(request.editable, requested.editable)
        return _with_options(
            replace(request, requirements=requirements, editable=editable), options
        )

    return _rebuild_environment(settings, home, uv, environment, add)


@click.command("uninstall", cls=EnvCommand)
@_NAME
@click.argument("packages", nargs=-1, required=True)
@_DRY_RUN
@index_options
@click.pass_obj
def uninstall(settings: Settings, /, name: str, packages: tuple[str, ...], **options: Any) -> int:
    """Remove packages, and dependencies that nothing else needs."""
    home, environment = find_own_environment(name)
    uv = make_installer(home, options)

    def remove(request: BuildRequest) -> BuildRequest:
        return _with_options(_without_packages(environment, request, packages), options)

    return _rebuild_environment(settings, home, uv, environment, remove)


def _without_packages(
    environment: Environment, request: BuildRequest, packages: Sequence[str]
) -> BuildRequest:
    """Return the request without some packages. Raise Refused for one that is not a requirement."""
    from haienv.layers.installed import find_editable_projects, read_versions
    from haienv.requirements.requirement_set import (
        group_by_name,
        project_directory,
        remove_requirements,
    )
    from haienv.store.requirements_lock import normalize_name

    requested = group_by_name(request.requirements)
    projects = find_editable_projects(environment.sites[0])
    removed = list(map(normalize_name, packages))
    for name in removed:
        if name not in requested and name not in projects:
            in_parent = name in read_versions(environment.sites[1:])
            raise Refused(
                f"{name} is not a requirement of {environment}",
                "it belongs to a parent, whose packages cannot be removed here"
                if in_parent
                else f"its requirements are: {', '.join((*requested, *projects)) or 'nothing'}",
            )
    removed_projects = {projects.get(name) for name in removed}
    editable = tuple(
        each for each in request.editable if project_directory(each) not in removed_projects
    )
    return replace(
        request, requirements=remove_requirements(request.requirements, removed), editable=editable
    )


def _with_options(request: BuildRequest, options: dict[str, Any]) -> BuildRequest:
    return replace(
        request,
        upgrade=options.get("upgrade", False),
        force=options.get("force", False),
        dry_run=options["dry_run"],
    )


def _rebuild_environment(
    settings: Settings,
    home: Home,
    uv: Uv,
    environment: Environment,
    change: Callable[[BuildRequest], BuildRequest],
    base: Base | None = None,
) -> int:
    """Rebuild an environment, print the plan, and run the hooks if anything has changed."""
    from haienv import operations
    from haienv.layers.plan import select_changes

    plan: list[Step] = []
    built = operations.rebuild(home, uv, environment, change, plan.extend, base)
    after = read_environment(home, environment.owner, environment.name) or environment
    is_same_layer = after.layer_id == environment.layer_id
    unchanged = "nothing to change" if is_same_layer else "no other packages"
    text = "\n".join(map(str, select_changes(plan))) or unchanged
    document = {} if built is None else environment_document(after)
    document["plan"] = steps_document(plan)
    settings.print_result(document, text)
    if is_same_layer:
        return 0
    _note_children(settings, home, environment)
    return run_hooks(home, after)


def _note_children(settings: Settings, home: Home, environment: Environment) -> None:
    if children := find_children(home, environment.owner, frozenset({environment.layer_id})):
        names = ", ".join(map(str, children))
        settings.print_note(
            f"{names} still extend its previous state; `haienv upgrade` updates them"
        )


@click.command("upgrade", cls=EnvCommand)
@_NAME
@click.option("-p", "--py", "python", default="", help="Change the Python (version or path).")
@click.option(
    "--keep-versions", is_flag=True, help="Only change to the current parent, or to the Python."
)
@click.option(
    "--rollback", is_flag=True, help="Switch back to the packages before the last change."
)
@_FORCE
@_DRY_RUN
@index_options
@click.pass_obj
def upgrade(settings: Settings, /, name: str, **options: Any) -> int:
    """Upgrade packages, on the current state of the parent.

    A new layer is built; the old one is kept for --rollback until gc deletes it.
    """
    from haienv import operations

    home, environment = find_own_environment(name)
    uv = make_installer(home, options)
    if options["rollback"]:
        after = operations.roll_back(home, environment)
        settings.print_result(environment_document(after), f"{after} is back at {after.layer_id}")
        return run_hooks(home, after)

    def upgrade_request(request: BuildRequest) -> BuildRequest:
        return replace(_with_options(request, options), upgrade=not options["keep_versions"])

    base = _choose_upgraded_base(home, environment, options["python"])
    return _rebuild_environment(settings, home, uv, environment, upgrade_request, base)


def _choose_upgraded_base(home: Home, environment: Environment, python: str) -> Base:
    """Return the base after an upgrade: the current parent, or the Python with the requested version."""
    from haienv.layers.base import make_environment_base, make_layer_base, make_python_base

    layer = environment.recorded_layer
    if layer.parents:
        parent = find_current_parent(home, environment)
        if parent is None:
            return make_layer_base(environment, environment.usable_layer)
        return make_environment_base(parent, python)
    current = make_layer_base(environment, layer)
    if layer.sites and "/" in python:
        return make_python_base(python)
    if layer.sites and python:
        raise UsageError(
            f"{environment} extends {layer.sites[0]}, so its Python version is fixed",
            "leave out -p, or pass the path of another Python to extend",
        )
    return replace(current, python=python, required_minor="") if python else current


@click.command("rename", cls=EnvCommand)
@_NAME
@click.argument("to")
@click.option("--force", is_flag=True, help="Also if tasks use it, which will not find it.")
@click.pass_obj
def rename(settings: Settings, name: str, to: str, force: bool) -> int:
    """Rename an environment, unless unfinished tasks use it. Environments that extend it keep working."""
    from haienv import operations
    from haienv.cluster import require_unused
    from haienv.store.access import require_owner

    home, environment = find_own_environment(name)
    if not force:
        require_unused(require_owner(home, environment))
    renamed = operations.rename(home, environment, to)
    settings.print_result(environment_document(renamed), str(renamed))
    return 0


@click.command(
    "pip",
    cls=EnvCommand,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def pip(ctx: click.Context, arguments: tuple[str, ...]) -> int:
    """Run `pip install|uninstall|list|freeze` in the active environment, through haienv."""
    from haienv.cli.commands.inspect import freeze

    match arguments:
        case ("install", *pip_arguments):
            command, translated = install, [".", *_translate_arguments(pip_arguments)]
        case ("uninstall", *pip_arguments):
            names = (each for each in pip_arguments if each not in ("-y", "--yes"))
            command, translated = uninstall, [".", *names]
        case ("list" | "freeze", *pip_arguments):
            command, translated = freeze, [".", *pip_arguments]
        case _:
            raise UsageError(
                "haienv manages the packages of this environment, so pip only has "
                "install, uninstall, list and freeze",
                "see `haienv --help`; `python -m pip` runs pip itself, if it is installed",
            )
    with command.make_context(command.name, translated, parent=ctx.parent) as inner:
        return int(command.invoke(inner))


def _translate_arguments(arguments: Sequence[str]) -> list[str]:
    """Translate options of pip: -r FILE to --from FILE, -i URL to --index URL."""
    return [each for argument in arguments for each in _translate_option(argument)]


def _translate_option(argument: str) -> list[str]:
    is_long = argument.startswith("--")
    name, _, value = argument.partition("=") if is_long else (argument[:2], "", argument[2:])
    option = argument.startswith("-") and _PIP_OPTIONS.get(name)
    return [option, *([value] if value else [])] if option else [argument]
