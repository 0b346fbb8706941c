"""Runs Helm and kubectl, so that the command line needs no Kubernetes client.

Arguments are passed as lists, never through a shell. A failure becomes one of our errors.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hai.client import errors

_NAMES = {"helm": "Helm 4", "kubectl": "kubectl"}
_HINT = "docs/deploy.md says what `hai cluster` needs"
# Fragments of messages -> our error, and a hint. The first match wins.
_ERROR_KINDS: tuple[tuple[tuple[str, ...], type[errors.HaiError], str], ...] = (
    (('context "', "context was not found", "invalid configuration"), errors.UsageError, ""),
    (("no such file",), errors.UsageError, ""),
    (
        ("unreachable", "connection refused", "no such host", "no configuration has been provided"),
        errors.Unreachable,
        "name the cluster with --kubeconfig and --context, or KUBECONFIG",
    ),
    (("forbidden", "unauthorized"), errors.Denied, "your account needs rights in the cluster"),
    (("release: not found", "has no deployed releases"), errors.NotFound, "`hai cluster up` first"),
    (
        ("timed out", "deadline exceeded"),
        errors.TimedOut,
        "`hai cluster status` says what is not ready",
    ),
    (
        ("don't meet the specifications", "execution error at", "cannot parse", "yaml:"),
        errors.Invalid,
        "`hai cluster config` prints a file with every value",
    ),
    (("is in progress",), errors.Conflict, "if nobody else is at work: helm rollback"),
)


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a program."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """A release of Helm in a namespace of a cluster."""

    release: str
    namespace: str
    kubeconfig: str | None
    context: str | None

    def helm(self, *arguments: str) -> str:
        """Run Helm and return its output. Raise HaiError."""
        return _require_success(
            "helm", _run(["helm", *arguments, *self._cluster_arguments("--kube-context")])
        )

    def release_options(self) -> tuple[str, ...]:
        """Return arguments for commands that change a release.

        Without them, Helm 4 would take over fields that others have set.
        """
        version = _require_success("helm", _run(["helm", "version", "--template={{.Version}}"]))
        return () if version.strip().startswith("v3.") else ("--server-side=false",)

    def kubectl(
        self, *arguments: str, stdin_text: str | None = None, accepted_codes: Sequence[int] = (0,)
    ) -> str:
        """Run kubectl with that standard input and return its output. Raise HaiError."""
        completed = _run(["kubectl", *arguments, *self._cluster_arguments("--context")], stdin_text)
        return (
            completed.out
            if completed.code in accepted_codes
            else _require_success("kubectl", completed)
        )

    def follow(self, on_line: Callable[[str], None], *arguments: str) -> None:
        """Run kubectl and pass on each line of its output. Raise HaiError."""
        command = ["kubectl", *arguments, *self._cluster_arguments("--context")]
        output_lines: list[str] = []
        with _start(command) as child:
            for line in _lines(child):
                output_lines.append(line)
                on_line(line)
        if child.returncode:
            _require_success("kubectl", Completed(child.returncode, "", "\n".join(output_lines)))

    def _cluster_arguments(self, context: str) -> list[str]:
        """Return the options that choose the cluster. `context` is the program's name of that option."""
        options = {"--kubeconfig": self.kubeconfig, context: self.context}
        return [
            f"--namespace={self.namespace}",
            *(f"{flag}={value}" for flag, value in options.items() if value),
        ]


def chart() -> Path:
    """Return the directory of the chart, from the installed package or from the checkout."""
    import hai_tui

    package = Path(hai_tui.__file__).parent
    for folder in (package / "chart", package.parent.parent / "backend" / "deploy" / "chart"):
        if (folder / "Chart.yaml").exists():
            return folder
    raise FileNotFoundError("the chart is neither in the package nor beside it")


def _run(command: list[str], stdin_text: str | None = None) -> Completed:
    """Run a program to its end."""
    _require_installed(command[0])
    completed = subprocess.run(
        command, input=stdin_text, capture_output=True, encoding="utf-8", check=False
    )
    return Completed(completed.returncode, completed.stdout, completed.stderr)


def _start(command: list[str]) -> subprocess.Popen[str]:
    """Start a program whose stderr goes to stdout."""
    _require_installed(command[0])
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )


def _lines(child: subprocess.Popen[str]) -> Iterator[str]:
    """Yield the lines of the output that are not empty."""
    assert child.stdout is not None
    return (line.rstrip() for line in child.stdout if line.strip())


def _require_installed(program: str) -> None:
    if shutil.which(program) is None:
        message = f"{_NAMES[program]} is not installed"
        raise errors.HaiError(message, reason="NOT_INSTALLED", hint=_HINT)


def _require_success(program: str, completed: Completed) -> str:
    """Return the output. Raise the error that matches the message of the program if it has failed."""
    if completed.code == 0:
        return completed.out
    output_lines = _error_message(completed.err) or f"exit code {completed.code}"
    for fragments, kind, hint in _ERROR_KINDS:
        if any(fragment in completed.err.lower() for fragment in fragments):
            raise kind(f"{program}: {output_lines}", hint=hint)
    raise errors.HaiError(f"{program}: {output_lines}", reason="FAILED")


def _error_message(output_lines: str) -> str:
    """Return the last error of the output. The lines before it are warnings."""
    lines = output_lines.strip().splitlines()
    starts = [i for i, line in enumerate(lines) if line.lower().startswith("error")]
    message = "\n".join(lines[starts[-1] :] if starts else lines[-1:])
    return message.removeprefix("Error: ").removeprefix("error: ").strip()
