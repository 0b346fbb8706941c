"""`hai cluster …`: the servers in a Kubernetes cluster, managed with Helm and kubectl."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from hai.client import errors
from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.output.output import dump, note, print_rows
from hai_tui.cli.parameters import combine, yes_option
from hai_tui.cli.server.cluster_plan import Plan, make_plan
from hai_tui.cli.server.helm import Cluster, chart
from hai_tui.cli.settings import Settings
from hai_tui.i18n import text
from hai_tui.views.cluster import SERVERS, servers_of_pods

_cluster_options = combine(
    click.option(
        "-n", "--namespace", default="hai", show_default=True, help="Namespace of the servers."
    ),
    click.option("--name", "release", default="hai", show_default=True, help="Helm release."),
    click.option(
        "--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Which cluster."
    ),
    click.option("--context", metavar="NAME", help="Which cluster of the kubeconfig."),
)
_VALUES = click.option(
    *("-f", "--values"),
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Values of the chart; later files win.",
)
_TIMEOUT = click.option(
    *("--timeout",),
    type=click.IntRange(1),
    default=600,
    show_default=True,
    help="Seconds until the servers must be ready.",
)
_RETAINED_KINDS = "pvc,secret"


def _make_cluster(
    namespace: str, name: str, kubeconfig: str | None, context: str | None
) -> Cluster:
    return Cluster(name, namespace, kubeconfig, context)


@click.group("cluster", cls=HaiGroup)
def cluster() -> None:
    """Run the servers in a Kubernetes cluster. Needs helm and kubectl.

    \b
    Examples:
      hai cluster config values.yaml     a file with every value, to be edited
      hai cluster dryrun -f values.yaml  what would change
      hai cluster up -f values.yaml      install, or change what is installed
      hai cluster status
      hai cluster upgrade --tag 0.2.0    servers are replaced one after the other
      hai cluster down                   programs and data stay
    """


@cluster.command("config", cls=HaiCommand)
@click.argument("file", required=False, type=click.Path(dir_okay=False))
def config(file: str | None) -> int:
    """Write every value of the chart, with its meaning, to FILE or stdout."""
    values = (chart() / "values.yaml").read_text("utf-8")
    if file is None:
        click.echo(values, nl=False)
        return os.EX_OK
    try:
        with Path(file).open("x", encoding="utf-8") as made:
            made.write(values)
    except FileExistsError as error:
        raise errors.Conflict(f"{file} already exists", hint="name another file") from error
    return os.EX_OK


@cluster.command("dryrun", cls=HaiCommand)
@_VALUES
@_cluster_options
@click.pass_obj
def dryrun(settings: Settings, /, values: tuple[str, ...], **options: Any) -> int:
    """Show what `hai cluster up` would change, and change nothing."""
    target = Cluster(**options)
    arguments = _install_arguments(target, values, "--dry-run=server", "--output=json")
    plan = make_plan(target, json.loads(target.helm(*arguments))["manifest"])
    if settings.json:
        dump(settings, {"changes": plan.has_changes, **asdict(plan)})
    else:
        _print_plan(settings, plan)
    return os.EX_OK


def _print_plan(settings: Settings, plan: Plan) -> None:
    """Print the objects to create and to delete, and the diff."""
    for sign, names in (("+", plan.created), ("-", plan.deleted)):
        for name in names:
            click.echo(f"{sign} {name}")
    click.echo(plan.diff, nl=False)
    if not plan.has_changes:
        note(settings, text("cluster.same"))


@cluster.command("up", cls=HaiCommand)
@_VALUES
@_TIMEOUT
@_cluster_options
@click.pass_obj
def up(settings: Settings, /, values: tuple[str, ...], timeout: int, **options: Any) -> int:
    """Install the servers, or change them, and wait until they are ready."""
    target = Cluster(**options)
    note(settings, text("cluster.installing", name=target.release, namespace=target.namespace))
    target.helm(*_install_arguments(target, values))
    return _wait_until_ready(settings, target, timeout)


@cluster.command("upgrade", cls=HaiCommand)
@click.option("--tag", help="Tag of the image. Default: the version of this client.")
@_VALUES
@_TIMEOUT
@_cluster_options
@click.pass_obj
def upgrade(
    settings: Settings, /, tag: str | None, values: tuple[str, ...], timeout: int, **options: Any
) -> int:
    """Replace the servers, one after the other; values stay unless they are given."""
    target = Cluster(**options)
    tag_option = f"--set-string=image.tag={tag or ''}"
    note(settings, text("cluster.upgrading", name=target.release))
    files = [f"--values={file}" for file in values]
    arguments = ("--reset-then-reuse-values", *files, tag_option, *target.release_options())
    target.helm("upgrade", target.release, str(chart()), *arguments)
    return _wait_until_ready(settings, target, timeout)


@cluster.command("status", cls=TableCommand)
@_cluster_options
@click.pass_obj
def status(settings: Settings, /, **options: Any) -> int:
    """Show the servers. The exit code is 1 if none is ready."""
    return _print_status(settings, Cluster(**options))


@cluster.command("down", cls=HaiCommand)
@yes_option
@click.option("--purge", is_flag=True, help="Also delete tasks and data.")
@_cluster_options
@click.pass_obj
def down(settings: Settings, /, yes: bool, purge: bool, **options: Any) -> int:
    """Remove the servers from the cluster. Data stays: volumes, secrets, the database.

    Programs run on for a while (fence_after), and continue when servers are back. With
    --purge all programs end, and the chart's volumes and secrets are deleted: tasks,
    logs, checkpoints, users. A database or volume of your own stays.
    """
    target = Cluster(**options)
    values = json.loads(target.helm("get", "values", target.release, "--all", "--output=json"))
    question = "cluster.purge" if purge else "cluster.down"
    prompt = text(question, name=target.release, namespace=target.namespace)
    if not yes and not click.confirm(prompt, err=True):
        note(settings, text("confirm.no"))
        return 1
    target.helm("uninstall", target.release, "--wait")
    if purge:
        _purge(target, values)
    note(settings, text("cluster.gone", name=target.release))
    return os.EX_OK


def _purge(target: Cluster, values: Any) -> None:
    """Delete the runs first: each owns its pods, secrets and services."""
    namespace = values["tasks"]["namespace"] or target.namespace
    tasks = replace(target, release="", namespace=namespace)
    runs = f"app.kubernetes.io/managed-by=hai,app.kubernetes.io/instance={values['cluster']}"
    tasks.kubectl("delete", "configmap", f"--selector={runs}", "--wait=false")
    selector = f"--selector=app.kubernetes.io/instance={target.release}"
    target.kubectl("delete", _RETAINED_KINDS, selector, "--wait=false")


def _install_arguments(target: Cluster, values: tuple[str, ...], *more: str) -> list[str]:
    """Return the arguments of Helm that install or change the release."""
    files = [f"--values={file}" for file in values]
    arguments = ["upgrade", target.release, str(chart()), "--install", "--create-namespace", *files]
    return [*arguments, *target.release_options(), *more]


def _wait_until_ready(settings: Settings, target: Cluster, timeout: int) -> int:
    """Wait for each stateful set of the release, the database first."""
    selector = f"--selector=app.kubernetes.io/instance={target.release}"
    names = target.kubectl("get", "statefulsets", selector, "--output=name").split()
    for name in sorted(names, reverse=True):
        limit = f"--timeout={timeout}s"
        target.follow(lambda line: note(settings, line), "rollout", "status", name, limit)
    return _print_status(settings, target)


def _print_status(settings: Settings, target: Cluster) -> int:
    """Print the state of the release and its servers. Return 1 if no server is ready."""
    release = json.loads(target.helm("status", target.release, "--output=json"))
    selector = f"app.kubernetes.io/instance={target.release},app.kubernetes.io/name=hai-server"
    found = list(
        servers_of_pods(
            json.loads(target.kubectl("get", "pods", f"--selector={selector}", "--output=json"))
        )
    )
    if settings.structured:
        facts = {"state": release["info"]["status"], "revision": release["version"]}
        dump(settings, {"release": target.release, **facts, "servers": found})
    elif settings.names_only:
        click.echo("".join(f"{server['name']}\n" for server in found), nl=False)
    elif found:
        print_rows(settings, SERVERS, found)
    else:
        note(settings, text("cluster.no_servers"))
    return os.EX_OK if any(server["ready"] for server in found) else 1
