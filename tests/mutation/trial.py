"""Records which tests execute which lines, and tries in a forked process whether they notice an error there.

The process that forks has loaded the libraries but none of our modules. So the child imports the faulty module as if it
had been written so, including constants, default arguments and `from … import`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import coverage
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutation.mutants import Mutant, compiled

PACKAGE = "hai_backend.scheduler"
HERE = Path(str(importlib.util.find_spec(PACKAGE).origin)).parent  # type: ignore[union-attr]
SOURCES = {
    ".".join(path.relative_to(HERE).with_suffix("").parts): path
    for path in sorted(HERE.rglob("*.py"))
    if path.stem not in ("__init__", "testing")
}
_MEMORY = 8 << 30  # bytes; a list that grows without end exceeds it
_IMPORT = ""  # stands for the test if lines are executed on import
_IMPORTING = 30.0  # seconds until the first test begins
_EXAMPLES = 40  # per property at most, because all tests run for a mutant that survives


@dataclass(frozen=True, slots=True)
class Passage:
    """The processor seconds of each test, and the tests that execute each line of a module."""

    seconds: dict[str, float]
    through: dict[str, dict[str, list[str]]]

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that may notice the mutant, the fastest first."""
        lines, found = self.through[mutant.module], set(self.seconds)
        here = {test for n in mutant.lines or () for test in lines.get(str(n), ())}
        if mutant.lines is not None and _IMPORT not in here:
            found &= here
        return sorted(found, key=lambda test: (self.seconds[test], test))


def passage(tests: Sequence[str], notes: Path) -> Passage:
    """Run all tests once, and record which lines each test executes."""
    report = notes / "passage"
    if os.waitpid(_fork(lambda: _record(tests, report)), 0)[1]:
        raise SystemExit(f"the tests fail without any mutant; see `pytest -x {' '.join(tests)}`")
    return Passage(**json.loads(report.read_text()))


def _record(tests: Sequence[str], report: Path) -> int:
    files = [str(path) for path in SOURCES.values()]
    watch = coverage.Coverage(data_file=None, config_file=False, include=files)
    clock = _Clock(watch.switch_context)
    with watch.collect():
        failed = _pytest(tests, clock)
    data = watch.get_data()
    through = {name: data.contexts_by_lineno(str(path)) for name, path in SOURCES.items()}
    report.write_text(json.dumps({"seconds": clock.seconds, "through": through}))
    return failed


class _Clock:
    def __init__(self, enter: Callable[[str], object]) -> None:
        self.seconds: dict[str, float] = {}
        self._enter = enter

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._enter(nodeid)
        self.seconds[nodeid] = -time.process_time()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] += time.process_time()


def start(mutant: Mutant, passed: Passage, notes: Path) -> int:
    """Start a process that tries a mutant. `finish` waits for it."""
    tests = {test: passed.seconds[test] for test in passed.tests(mutant)}
    files = dict.fromkeys(test.partition("::")[0] for test in tests)

    def attempt() -> int:
        sys.meta_path.insert(0, _Finder(mutant))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        _limit(_IMPORTING)
        return _pytest([*files, "-x"], _Chosen(tests, notes)) if tests else 0

    return _fork(attempt)


def finish(notes: Path) -> tuple[int, dict[str, str]]:
    """Wait for the next process to end. Return its id, the outcome of its mutant, and the test that noticed it."""
    pid, status = os.wait()
    note = notes / str(pid)
    by = {"by": note.read_text()} if note.exists() and status else {}
    outcome = "timeout" if os.WIFSIGNALED(status) else "killed" if status else "survived"
    return pid, {"outcome": outcome} | by


class _Chosen:
    """Runs the chosen tests in order, each with a time limit, and records the current test."""

    def __init__(self, tests: dict[str, float], notes: Path) -> None:
        self._tests = tests
        self._note = notes / str(os.getpid())

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self._tests if test in found]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._note.write_text(nodeid)
        _limit(5 + 5 * self._tests[nodeid])


class _Finder(SourceFileLoader):
    """Finds one module, and loads a mutant instead of its text."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(f"{PACKAGE}.{mutant.module}", str(SOURCES[mutant.module]))
        self._mutant = mutant

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        own = name == self.name
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if own else None

    def get_code(self, fullname: str) -> CodeType:
        return compiled(self._mutant, Path(self.path).read_text(), self.path)


def _pytest(arguments: Sequence[str], plugin: object) -> int:
    """Run pytest with fixed examples, and without shrinking failing examples."""
    settings.register_profile(
        "mutation",
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutation")
    quick = ["-q", "-s", "-p", "no:cacheprovider", "--assert=plain"]
    return int(pytest.main([*arguments, *quick], plugins=[_FewExamples(), plugin]))


class _FewExamples:
    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Set the number of examples of tests that set it themselves; hypothesis offers no other way."""
        test: Any = getattr(item, "obj", None)
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None:
            few = settings(own, max_examples=min(own.max_examples, _EXAMPLES))
            test._hypothesis_internal_use_settings = few


def _limit(seconds: float) -> None:
    """Limit the processor time from now on. Other processes may use the machine too."""
    until = int(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))


def _fork(work: Callable[[], int]) -> int:
    if pid := os.fork():
        return pid
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        status = work()
    finally:
        os._exit(status)
