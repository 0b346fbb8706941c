"""Implements `haienv create` and `haienv clone`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haienv.cli.common import (
    EnvCommand,
    Settings,
    complete_names,
    find_environment,
    index_options,
    make_installer,
    parse_reference_argument,
    source_option,
    steps_document,
)
from haienv.cli.view import environment_document
from haienv.errors import UsageError
from haienv.names import Reference, variable_fault
from haienv.store.layout import Home
from haienv.store.records import (
    VISIBILITIES,
    Config,
    EnvMetadata,
    hook_fault,
    path_fault,
    value_fault,
)
from haienv.store.registry import find_by_reference

if TYPE_CHECKING:
    from haienv.layers.base import Base
    from haienv.layers.build import BuildRequest
    from haienv.layers.plan import Step
    from haienv.requirements.requirement_set import RequirementSet

_CREATE = """Create an environment with packages, in the syntax of pip.

It extends the active environment, or else the Python that the shell finds; --extend names another,
--no_extend creates a clean one.

\b
Examples:
  haienv create base --no_extend -p 3.11 numpy 'torch>=2.6' --visibility public
  haienv create mine --extend 'base[platform]' wandb
  haienv create mine --from requirements.txt --dry-run
  haienv create mine --from pyproject.toml --from-extra train
"""


@click.command("create", cls=EnvCommand, help=_CREATE)
@click.argument("name")
@click.argument("requirements", nargs=-1)
@source_option
@click.option("--from-extra", "extras", multiple=True, help="An extra of pyproject.toml.")
@click.option("-e", "--editable", multiple=True, metavar="DIR", help="Install a project in place.")
@click.option(
    "--extend",
    "parent",
    metavar="NAME[USER]",
    shell_complete=complete_names,
    help="Environment to extend.",
)
@click.option("--no_extend", "--no-extend", is_flag=True, help="Create a clean environment.")
@click.option(
    "-p", "--py", "python", default="", help="Version or path of Python; default: $HAIENV_PY."
)
@click.option(
    "--conda",
    "conda_packages",
    multiple=True,
    metavar="SPEC",
    help="Extend a Python that conda creates, with this package.",
)
@click.option("--channel", "channels", multiple=True, help="Channel of conda.")
@click.option(
    "--extra-search-dir", "search_dirs", multiple=True, metavar="DIR", help="Add to PYTHONPATH."
)
@click.option(
    "--extra-search-bin-dir", "bin_dirs", multiple=True, metavar="DIR", help="Add to PATH."
)
@click.option(
    "--extra-environment", "variables", multiple=True, metavar="K=V", help="Set a variable."
)
@click.option(
    "--hook", "hooks", multiple=True, metavar="COMMAND", help="Run after packages changed."
)
@click.option(
    "--visibility",
    type=click.Choice(VISIBILITIES),
    default="private",
    help="Who can see the environment.",
)
@click.option("--group", default="", help="A group of this system, for --visibility group.")
@click.option("--description", default="", help="Description.")
@click.option(
    "--compile/--no-compile",
    "compiled",
    default=None,
    help="Compile modules now; default: if others can see it.",
)
@click.option(
    "--require-cuda", metavar="RANGE", default="", help="Fail unless the driver supports it."
)
@click.option("--verify", is_flag=True, help="Compare all files with their RECORD first.")
@click.option(
    "--force", is_flag=True, help="Allow other versions than compiled packages of a parent need."
)
@click.option("-y", "--yes", is_flag=True, help="Ignored; create asks no questions.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@index_options
@click.pass_obj
def create(settings: Settings, /, name: str, **options: Any) -> int:
    """Click shows _CREATE."""
    from haienv import operations
    from haienv.hooks import run_hooks
    from haienv.layers.machine import find_cuda_version, require_cuda
    from haienv.requirements.files import collect_requirements
    from haienv.requirements.requirement_set import RequirementSet, absolute_project

    home = Home.from_environ()
    uv = make_installer(home, options)
    if options["require_cuda"]:
        require_cuda(options["require_cuda"], find_cuda_version())
    requested = RequirementSet(
        options["requirements"], tuple(map(absolute_project, options["editable"]))
    )
    requested = collect_requirements(requested, options["sources"], options["extras"])
    metadata = _metadata_from_options(options)
    base = _choose_base(home, options, requested.python)
    if options["conda_packages"]:
        metadata = replace(metadata, config=_with_conda_programs(metadata.config, base))
    plan: list[Step] = []

    def on_plan(steps: Sequence[Step]) -> None:
        plan.extend(steps)
        if not options["dry_run"]:
            settings.print_note("\n".join(map(str, steps)))

    request = _build_request(options, requested, base, metadata)
    environment = operations.create(home, uv, name, base, request, metadata, on_plan)
    if environment is None:
        settings.print_result({"plan": steps_document(plan)}, _format_plan(plan))
        return 0
    settings.print_result(
        {**environment_document(environment), "plan": steps_document(plan)}, str(environment.path)
    )
    settings.print_note(
        f"environment {environment} is ready ({_summarize(plan)}): source haienv {name}"
    )
    return run_hooks(home, environment)


def _metadata_from_options(options: dict[str, Any]) -> EnvMetadata:
    return EnvMetadata(
        visibility=options["visibility"],
        group=options["group"],
        description=options["description"],
        config=_config_from_options(options),
    )


def _build_request(
    options: dict[str, Any], requested: RequirementSet, base: Base, metadata: EnvMetadata
) -> BuildRequest:
    from haienv.layers.build import BuildRequest, exact_pins

    compile_bytecode = options["compiled"]
    if compile_bytecode is None:
        compile_bytecode = metadata.visibility != "private"
    return BuildRequest(
        requirements=requested.requirements,
        editable=requested.editable,
        exact=exact_pins(requested, base),
        force=options["force"],
        compile_bytecode=compile_bytecode,
        verify=options["verify"],
        dry_run=options["dry_run"],
    )


def _summarize(plan: Sequence[Step]) -> str:
    from haienv.layers.plan import Action

    shared = sum(step.action is Action.SHARE for step in plan)
    return f"{len(plan) - shared} packages installed, {shared} shared with its parents"


def _format_plan(plan: Sequence[Step]) -> str:
    return "\n".join(map(str, plan)) or "nothing to install"


def _config_from_options(options: dict[str, Any]) -> Config:
    """Return the configuration that the options describe. Raise UsageError, which lists all invalid values."""
    pairs = [pair.partition("=") for pair in options["variables"]]
    faults = [f"{k!r} has no value: write K=V" for k, equals, _ in pairs if not equals]
    faults += [f for k, _, v in pairs if (f := variable_fault(k) or value_fault(v))]
    directories = [*options["search_dirs"], *options["bin_dirs"]]
    faults += [f for hook in options["hooks"] if (f := hook_fault(hook))]
    faults += [f for d in directories if (f := path_fault(os.path.abspath(d)))]
    if faults:
        raise UsageError("; ".join(faults))
    return Config(
        tuple(map(os.path.abspath, options["search_dirs"])),
        tuple(map(os.path.abspath, options["bin_dirs"])),
        {k: v for k, _, v in pairs},
        options["hooks"],
    )


def _choose_base(home: Home, options: dict[str, Any], requested_python: str) -> Base:
    """Return the base that the options select; by default, the active environment or the Python of the shell."""
    from haienv.layers.base import (
        choose_default_parent,
        find_running_minor,
        find_running_python,
        make_empty_base,
        make_environment_base,
        make_python_base,
    )
    from haienv.store.access import require_same_root

    python = options["python"] or requested_python or os.environ.get("HAIENV_PY", "")
    if options["conda_packages"]:
        return _make_conda_base(home, options, python or find_running_minor())
    if options["no_extend"]:
        if options["parent"]:
            raise UsageError("--extend and --no_extend are mutually exclusive")
        return make_empty_base(python or find_running_python())
    parent = (
        parse_reference_argument(options["parent"])
        if options["parent"]
        else choose_default_parent(os.environ)
    )
    if isinstance(parent, Reference):
        environment = find_by_reference(home, parent)
        require_same_root(home, environment)
        return make_environment_base(environment, python)
    return make_python_base(python if "/" in python else parent, python)


def _make_conda_base(home: Home, options: dict[str, Any], python: str) -> Base:
    """Create a prefix with conda, and return its Python as the base."""
    from haienv.backends.conda import create_prefix
    from haienv.layers.base import make_python_base

    if options["parent"] or options["no_extend"] or options["dry_run"] or "/" in python:
        raise UsageError(
            "--conda creates the Python to extend at once",
            "it cannot be combined with --extend, --no_extend, --dry-run or a path for -p",
        )
    prefix = create_prefix(
        home, [f"python={python}", *options["conda_packages"]], options["channels"]
    )
    return make_python_base(str(prefix / "bin" / "python"), python)


def _with_conda_programs(config: Config, base: Base) -> Config:
    """Return the configuration with the programs of conda's packages in PATH."""
    prefix = Path(base.external_sites[0]).parents[2]  # from <prefix>/lib/pythonX.Y/site-packages
    return replace(config, bin_dirs=(*config.bin_dirs, str(prefix / "bin")))


@click.command("clone", cls=EnvCommand)
@click.argument("source", shell_complete=complete_names)
@click.argument("name")
@click.pass_obj
def clone(settings: Settings, source: str, name: str) -> int:
    """Create NAME with the packages of SOURCE. Both can change independently; no files are copied."""
    from haienv import operations

    home = Home.from_environ()
    environment = operations.clone(home, find_environment(source)[1], name)
    settings.print_result(environment_document(environment), str(environment.path))
    return 0
