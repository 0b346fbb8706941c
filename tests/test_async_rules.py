"""Rules for asyncio and gRPC that no linter checks: how streams end, where tasks start, who catches cancellations."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hai.v1
from tests.test_architecture import MODULES, ROOT

AGENT = ROOT / "backend" / "hai_backend" / "agent"

# Modules that may break a rule, with the reasons.
NO_STREAMS_OF_GRPC = {
    "proto/hai/client/connection/multi_address.py": "is a channel to stubs; what they make is wrapped by their callers",
}
MAKES_TASKS = {"backend/hai_backend/agent/coroutines.py": "the task group of the agent"}
OUTERMOST = {
    "backend/hai_backend/agent/program/local_socket.py": "asyncio's own task for a connection ends there",
    "backend/hai_backend/agent/__main__.py": "the process ends there, and its program with it",
    "jupyter_ext/hai_jupyter/magics.py": "raised again in the thread that asked",
}

STREAM_MAKERS = frozenset({"stream_stream", "unary_stream", "stream_unary"})
TRANSPORT = frozenset({"stream", "duplex"})  # of hai.client.connection: they wrap calls


def streaming_methods() -> frozenset[str]:
    """Return the names of all RPCs that stream in either direction."""
    found = set()
    for module in pkgutil.iter_modules(hai.v1.__path__):
        if not module.name.endswith("_service_pb2"):
            continue
        contract = importlib.import_module(f"hai.v1.{module.name}").DESCRIPTOR
        for service in contract.services_by_name.values():
            found |= {m.name for m in service.methods if m.client_streaming or m.server_streaming}
    return frozenset(found)


STREAMING = streaming_methods()


def raw_streams(code: ast.AST) -> list[int]:
    """Return the lines that make or pass a streaming call without StreamCall around it."""
    parents = {child: node for node in ast.walk(code) for child in ast.iter_child_nodes(node)}

    def wrong(node: ast.expr) -> bool:
        parent = parents[node]
        if not isinstance(parent, ast.Call):
            return True
        if parent.func is node:  # it is called
            user = parents[parent]
            return not (isinstance(user, ast.Call) and _name(user.func) == "StreamCall")
        return _name(parent.func) not in TRANSPORT

    return sorted({node.lineno for node in _multicallables(code) if wrong(node)})


def _multicallables(code: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that make streaming calls when called: `stub.Attach`, `channel.stream_stream("/…")(…)`."""
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and node.attr in STREAMING and not _is_service(node):
            yield node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Call):
            maker = node.func
            if isinstance(maker.func, ast.Attribute) and maker.func.attr in STREAM_MAKERS:
                yield maker


def _is_service(node: ast.Attribute) -> bool:
    """Return whether the method is of a service in this process, by the service's name: `self.service.Attach`."""
    whose = node.value.func if isinstance(node.value, ast.Call) else node.value
    return _name(whose).lower().endswith("service")


def loose_tasks(code: ast.AST) -> list[int]:
    """Return the lines that start an asyncio task outside a task group of the same function."""
    found = []
    for function in _functions(code):
        groups = set(_task_groups(function))
        for node in _own(function):
            if not isinstance(node, ast.Call):
                continue
            name = _name(node.func)
            grouped = isinstance(node.func, ast.Attribute) and _name(node.func.value) in groups
            if name == "ensure_future" or (name == "create_task" and not grouped):
                found.append(node.lineno)
    return sorted(found)


def _task_groups(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.withitem) and isinstance(node.context_expr, ast.Call):
            is_group = _name(node.context_expr.func) == "TaskGroup"
            if is_group and isinstance(node.optional_vars, ast.Name):
                yield node.optional_vars.id


def swallowed_cancellations(code: ast.AST) -> list[int]:
    """Return the lines that catch a cancellation, by any name, and never raise it again."""
    found = []
    for node in ast.walk(code):
        if isinstance(node, ast.ExceptHandler) and _catches_cancellation(node.type):
            found += [] if _raises(node) else [node.lineno]
        if isinstance(node, ast.Call) and _name(node.func) == "suppress":
            found += [node.lineno for each in node.args if _catches_cancellation(each)]
    return sorted(found)


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def _catches_cancellation(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(map(_catches_cancellation, kind.elts))
    return kind is None or _name(kind) in ("CancelledError", "BaseException")


def _functions(code: ast.AST) -> Iterator[ast.AST]:
    yield code
    yield from (n for n in ast.walk(code) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of functions inside it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _own(child)


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _name(value)
        case _:
            return ""


def findings(
    rule: Callable[[ast.AST], list[int]], modules: list[Path], exceptions: dict[str, str]
) -> dict[str, list[int]]:
    """Return, by module, the lines that break a rule, and the exceptions that are no longer needed."""
    lines = {str(p.relative_to(ROOT)): rule(ast.parse(p.read_text())) for p in modules}
    broken = {path: found for path, found in lines.items() if found and path not in exceptions}
    return broken | {path: [] for path in exceptions if not lines.get(path)}


# The rules, applied to the product.


def test_every_stream_is_read_and_written_through_stream_call() -> None:
    """grpc.aio ends the readers of a cancelled call as if their own tasks had been cancelled (see StreamCall)."""
    assert findings(raw_streams, MODULES, NO_STREAMS_OF_GRPC) == {}


def test_the_agent_begins_tasks_in_task_groups_only() -> None:
    """A task that ends unnoticed leaves an agent that seems to work, but may never attach or never end its program."""
    assert findings(loose_tasks, sorted(AGENT.rglob("*.py")), MAKES_TASKS) == {}


def test_nobody_swallows_a_cancellation() -> None:
    assert findings(swallowed_cancellations, MODULES, OUTERMOST) == {}


# The rules, applied to examples.


def test_the_contract_has_streams() -> None:
    assert {"Attach", "Carry", "WatchTasks", "PushTree", "Watch"} <= STREAMING
    assert "GetTask" not in STREAMING


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        pytest.param("async for a in stub.WatchTasks(r): pass", [1], id="read raw"),
        pytest.param("x = 1\ncall = self._stub.Attach(metadata=m)", [2], id="kept raw"),
        pytest.param("call = c.stream_stream('/x')(r)", [1], id="a raw call of a channel"),
        pytest.param("f(c.unary_stream('/x')(r))", [1], id="wrapped in something else"),
        pytest.param("attach = stub.Attach", [1], id="called under another name"),
        pytest.param("g(stub.Attach)", [1], id="handed to somebody"),
        pytest.param("StreamCall(stub.Attach(metadata=m))", [], id="wrapped"),
        pytest.param("StreamCall[A, B](stub.Attach())", [], id="wrapped, with types"),
        pytest.param(
            "streams.StreamCall(c.stream_stream('/x')(r))", [], id="wrapped, of a channel"
        ),
        pytest.param("t.stream(self._stub.WatchTasks, r)", [], id="handed to the transport"),
        pytest.param("t.duplex(self._stub.PushTree, rs)", [], id="handed to the transport, duplex"),
        pytest.param("self.push = c.stream_stream('/x', f)", [], id="a multicallable is made"),
        pytest.param("await stub.GetTask(r)", [], id="a call without streams"),
        pytest.param("async def WatchTasks(self, r): pass", [], id="a service"),
        pytest.param("self.service.Attach(rs, context)", [], id="a service of this process"),
        pytest.param("FakeTaskService(w).WatchTasks(r)", [], id="a service that is made"),
        pytest.param("TaskServiceStub(c).WatchTasks(r)", [1], id="a stub that is made"),
    ],
)
def test_raw_streams(code: str, lines: list[int]) -> None:
    assert raw_streams(ast.parse(code)) == lines


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        pytest.param("t = asyncio.ensure_future(w())", [1], id="ensure_future"),
        pytest.param("def f():\n  t = asyncio.create_task(w())", [2], id="create_task"),
        pytest.param("def f():\n  loop.create_task(w())", [2], id="of a loop"),
        pytest.param(
            "def f(group):\n  group.create_task(w())", [2], id="of a group from elsewhere"
        ),
        pytest.param(
            "async def f():\n  async with asyncio.TaskGroup() as g:\n    g.create_task(w())",
            [],
            id="in a task group",
        ),
        pytest.param(
            "async def f():\n  async with TaskGroup() as g:\n    asyncio.create_task(w())",
            [3],
            id="beside a task group",
        ),
    ],
)
def test_loose_tasks(code: str, lines: list[int]) -> None:
    assert loose_tasks(ast.parse(code)) == lines


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        pytest.param("try: f()\nexcept asyncio.CancelledError: pass", [2], id="swallowed"),
        pytest.param("try: f()\nexcept (OSError, CancelledError): pass", [2], id="in a tuple"),
        pytest.param("try: f()\nexcept BaseException as e: g(e)", [2], id="of everything"),
        pytest.param("try: f()\nexcept: pass", [2], id="bare"),
        pytest.param("with suppress(asyncio.CancelledError): await t", [1], id="suppressed"),
        pytest.param("try: f()\nexcept BaseException:\n  g()\n  raise", [], id="passed on"),
        pytest.param("try: f()\nexcept Exception: pass", [], id="errors only"),
        pytest.param("with suppress(OSError): f()", [], id="an error suppressed"),
    ],
)
def test_swallowed_cancellations(code: str, lines: list[int]) -> None:
    assert swallowed_cancellations(ast.parse(code)) == lines
