"""`make mutate-fence`: remove each statement of the fencing code, one at a time, and check whether a test notices.

Fencing runs in separate processes, which a forked test process cannot change. So each mutant is a copy of the product
(links, and one changed file) that comes first on the path of Python, also in processes that the tests start.

python -m tests.mutation.fence [--module NAME] [--list]
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import hai_backend

_PRODUCT = Path(str(hai_backend.__file__)).parent
_WORKERS = 2
_LIMIT_SECONDS = 240.0
_AGENT = "tests/backend/agent"
_RANK = f"{_AGENT}/test_rank.py::"
# The fastest tests come first: the first failure ends the trial.
_TESTS = (
    "tests/backend/domain/test_timing.py",
    f"{_AGENT}/test_main.py",
    f"{_AGENT}/test_lease.py",
    f"{_AGENT}/test_coroutines.py",
    f"{_AGENT}/server/test_session.py",
    f"{_AGENT}/test_supervisor.py",
    f"{_RANK}test_an_agent_with_a_lease_runs_while_it_is_renewed",
    f"{_RANK}test_without_a_renewal_the_program_ends_before_the_lease",
    f"{_RANK}test_a_stopped_agent_loses_its_program_to_the_supervisor",
    f"{_RANK}test_an_agent_that_fails_says_why",
    f"{_RANK}test_what_a_program_leaves_behind_is_ended_with_it",
    f"{_RANK}test_kill_9_of_an_agent_takes_the_program_with_it",
    f"{_RANK}test_a_program_that_ends_at_sigterm_has_its_grace",
    f"{_RANK}test_stubborn_programs_and_those_that_ran_away_are_ended",
    "tests/backend/launch/test_local_launcher.py::test_a_second_agent_of_a_rank_leaves_at_once",
    f"{_RANK}test_end_before_go_starts_nothing",
    f"{_RANK}test_a_terminated_agent_without_a_server_leaves",
    f"{_RANK}test_a_terminated_agent_ends_its_program_and_says_so",
    f"{_RANK}test_a_removed_rank_directory_ends_the_program",
)
# All statements of these modules, and those functions of other modules that belong to fencing.
_FENCE: dict[str, tuple[str, ...]] = {
    "domain/timing.py": (),
    "agent/lease.py": (),
    "agent/supervisor.py": (),
    "agent/coroutines.py": (),
    "agent/__main__.py": (),
    "agent/server/session.py": ("beat", "_end_when_silent", "_receive", "_answered", "_attach"),
    "agent/rank.py": (
        *("run", "_keep_attached", "_end_before_expiry", "_send_heartbeats"),
        *("_report_exit", "_end", "stop"),
    ),
    "agent/program/program.py": ("end_everything", "_kill_remaining", "_kill_all", "end"),
}
# Statements that do not matter for fencing, with the reasons.
_EQUIVALENT = {
    "agent/supervisor.py: signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)": (
        "closes a gap of microseconds between the fork and the handlers, which no test can hit"
    ),
    "agent/supervisor.py: code = EXIT_BUG": "Python's own exit code for what is raised is 1, too",
    "agent/supervisor.py: with suppress(OSError):": "what is written there is flushed line by line",
    "agent/supervisor.py: sys.stdout.flush()": "nothing is written there by the agent itself",
    "agent/supervisor.py: sys.stderr.flush()": "stderr of Python is not buffered by more than a line",
    "agent/supervisor.py: return None": "the same without it",
    "agent/supervisor.py: os.kill(self._agent, signal.SIGKILL)": (
        "the line after the next one does it, too, some milliseconds later"
    ),
    "agent/supervisor.py: if remaining:": "takes a process that the kernel cannot kill",
    "agent/supervisor.py: why = f\"{why}. Processes {', '.join(map(str, remaining))} cannot be ended\"": (
        "takes a process that the kernel cannot kill"
    ),
    "agent/__main__.py: return EXIT_BUG": "Python's own exit code for what follows is 1, too",
    "agent/coroutines.py: return False": "the same without it",
    "agent/coroutines.py: task.add_done_callback(self._tasks.discard)": "it frees memory",
    'agent/server/session.py: stream.cancel("the agent leaves the stream")': (
        "its channel is closed in the next moment, which ends the stream, too"
    ),
    "agent/server/session.py: self._heartbeats_sent_at.clear()": "it frees memory: no number is used twice",
    "agent/supervisor.py: _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)": (
        "what loses its parent is found by its marks, too"
    ),
    "agent/supervisor.py: write_agent_log(why)": "for people who read agent.log",
    "agent/supervisor.py: if self.descriptor < 0:": "takes a kernel without timers",
    'agent/supervisor.py: raise OSError(ctypes.get_errno(), "the kernel offers no timer for the lease")': (
        "takes a kernel without timers"
    ),
    'agent/supervisor.py: raise OSError(ctypes.get_errno(), "the timer of the lease cannot be set")': (
        "takes a kernel without timers"
    ),
    "agent/program/program.py: noted: set[int] = set()": "takes a process that the kernel cannot kill",
    "agent/program/program.py: for process in remaining:": "takes a process that the kernel cannot kill",
    "agent/program/program.py: if process.pid not in noted:": "takes a process that the kernel cannot kill",
    "agent/program/program.py: noted.add(process.pid)": "takes a process that the kernel cannot kill",
    'agent/program/program.py: write_agent_log(f"process {process.pid} cannot be ended yet; see `ps {process.pid}`")': (
        "takes a process that the kernel cannot kill"
    ),
    "agent/program/program.py: self._is_ending = True": "a program that is asked twice gets SIGTERM twice",
    "agent/rank.py: await self._socket.open()": "calls of programs have tests of their own",
    "agent/rank.py: self._services.terminate()": "the end of the rank ends them, too, without a grace",
    "agent/rank.py: self._socket.close()": "it removes a socket file",
    "agent/rank.py: await asyncio.to_thread(self._directory.end_everything)": (
        "the supervisor does it, too, when the agent has ended"
    ),
    'agent/__main__.py: print(trace, file=sys.stderr, end="")': "for people who read agent.log",
    'agent/rank.py: write_agent_log(f"leaving: {error}")': "for people who read agent.log",
    'agent/rank.py: write_agent_log(f"ending: {why}")': "for people who read agent.log",
    # After the program has ended, there is nothing to fence.
    "agent/rank.py: self._lease.release()": "the rank ends earlier, and its exit may be lost",
    "agent/rank.py: self._tunnels.program_ended()": "tunnels end with the agent, too",
    "agent/rank.py: self._checkpoints.flush()": "a report of a checkpoint comes a second later",
    "agent/rank.py: await asyncio.Event().wait()": "a part that ends, ends the agent, too",
    # These decide which heartbeats contain measurements.
    "agent/rank.py: wait = self._timing.interval": "the first interval is the shorter one",
    "agent/rank.py: if clock() - measured_at < _MEASURE_SECONDS:": "it measures each time",
    "agent/rank.py: continue": "it measures each time",
    "agent/rank.py: measured_at = clock()": "it measures each time",
    "agent/rank.py: if self._welcome and self._welcome.container:": "about idle containers",
    "agent/rank.py: await self._report_idleness()": "about idle containers",
    "agent/rank.py: self._session.beat(usage.measure(processes.descendants(os.getpid())))": (
        "one heartbeat of many is left out"
    ),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One statement that is removed."""

    module: str
    line: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.module}: {self.text}"


def mutants(module: str, source: str, functions: tuple[str, ...]) -> Iterator[Mutant]:
    """Return a mutant for each statement that has an effect, in the order of the text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            not functions or node.name in functions
        ):
            for statement in _statements(node):
                text = ast.get_source_segment(source, statement) or ""
                yield Mutant(module, statement.lineno, text.splitlines()[0])


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(child, ast.stmt) and not _is_inert(child):
            yield child
        yield from _statements(child)


def _is_inert(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring, an import, `pass` or an assertion."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass | ast.Assert)


def without(source: str, mutant: Mutant) -> str:
    """Return the module without this statement."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            for i, statement in enumerate(body if isinstance(body, list) else ()):
                text = ast.get_source_segment(source, statement) or ""
                if statement.lineno == mutant.line and text.startswith(mutant.text):
                    body[i] = ast.copy_location(ast.Pass(), statement)
                    return ast.unparse(ast.fix_missing_locations(tree))
    raise ValueError(f"no statement in line {mutant.line} of {mutant.module}")


def overlay(mutant: Mutant, directory: Path) -> None:
    """Make a package hai_backend below `directory`: links to the product, and one changed module."""
    top = directory / "hai_backend"
    package = mutant.module.partition("/")[0]
    for target, source in ((top, _PRODUCT), (top / package, _PRODUCT / package)):
        if target.is_symlink():
            target.unlink()
        target.mkdir()
        for entry in source.iterdir():
            if entry.name != "__pycache__":
                (target / entry.name).symlink_to(entry)
    changed = top / mutant.module
    changed.unlink()
    changed.write_text(without((_PRODUCT / mutant.module).read_text(), mutant))


def outcome(mutant: Mutant) -> str:
    """Return `noticed by TEST`, `timeout`, or `survived`."""
    with tempfile.TemporaryDirectory() as directory:
        overlay(mutant, Path(directory))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *_TESTS]
        paths = os.pathsep.join(filter(None, (directory, os.environ.get("PYTHONPATH", ""))))
        try:
            done = subprocess.run(
                command,
                env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=_LIMIT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return "timeout"
    if done.returncode == 0:
        return "survived"
    by = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return f"noticed by {by[0].split()[1] if by else 'the first import'}"


def main() -> int:
    """Return 1 if a mutant survives that is not known to be equivalent."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.fence")
    parser.add_argument("--module", default="", help="only of modules with this in their path")
    parser.add_argument("--list", action="store_true", help="name the mutants, and try none")
    arguments = parser.parse_args()
    chosen = [
        mutant
        for module, functions in _FENCE.items()
        if arguments.module in module
        for mutant in mutants(module, (_PRODUCT / module).read_text(), functions)
    ]
    if arguments.list:
        print(*(f"{mutant.module}:{mutant.line}: {mutant.text}" for mutant in chosen), sep="\n")
        return 0
    began, survived = time.monotonic(), 0
    with ThreadPoolExecutor(_WORKERS) as workers:
        for mutant, found in zip(chosen, workers.map(outcome, chosen), strict=True):
            if found == "survived" and mutant.name in _EQUIVALENT:
                found = f"equivalent: {_EQUIVALENT[mutant.name]}"
            survived += found == "survived"
            print(f"{mutant.module}:{mutant.line}: {mutant.text}\n    {found}", flush=True)
    print(f"{len(chosen)} mutants, {survived} survived, {time.monotonic() - began:.0f} s")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
