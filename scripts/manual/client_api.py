"""Makes the reference page of `hai.client` from its docstrings. mkdocs calls it through `hooks.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module

import hai.client
from hai.client import Client, Profile

_INTRODUCTION = """\
# The Python client: `hai.client`

This page is made from the docstrings of the code. The client does everything that the `hai` command does:

```python
import asyncio
from hai.client import Client, load, read_spec

async def main() -> None:
    async with Client(load()) as client:          # the current profile, as `hai` uses it
        task = await client.tasks.create(read_spec("train.yaml"))
        task = await client.tasks.wait(task.id)
        print(task.name, task.outcome)

asyncio.run(main())
```

Methods return messages of the contract `hai.v1`. They raise [errors](#errors) of `hai.client.errors`. A call that only
reads, and a submission, is repeated when the server cannot be reached for a moment.
"""


def client_api() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *_public_names(), *_resources(), *_errors()])


def public_methods(kind: type) -> dict[str, object]:
    """Return the public methods and properties of a class by name, in the order of the source."""
    found = {
        name: member
        for base in reversed(kind.__mro__)
        for name, member in vars(base).items()
        if not name.startswith("_") and base is not object
    }
    return {name: member for name, member in found.items() if _is_documented(member)}


def resources() -> dict[str, type]:
    """Return the classes of a `Client`'s attributes by the attribute's name."""
    client = Client(Profile(server="127.0.0.1:1", token=""))
    return {
        name: type(value)
        for name, value in sorted(vars(client).items())
        if not name.startswith("_") and name != "profile"
    }


def _public_names() -> Iterator[str]:
    yield "## What `hai.client` exports\n"
    for name in hai.client.__all__:
        value = getattr(hai.client, name)
        if inspect.isfunction(value):
            yield f"**`{name}{_signature(value)}`**\n\n{_text(value)}\n"
        else:
            yield f"**`{name}`**\n\n{_text(value)}\n"


def _resources() -> Iterator[str]:
    for attribute, kind in resources().items():
        yield f"## `client.{attribute}`\n\n{_text(kind)}\n"
        for name, member in public_methods(kind).items():
            yield f"**`{name}{_signature(member)}`**\n\n{_text(member)}\n"


def _errors() -> Iterator[str]:
    module = import_module("hai.client.errors")
    yield f"## Errors\n\n```text\n{inspect.cleandoc(module.__doc__ or '')}\n```\n"
    for name, kind in vars(module).items():
        if (
            inspect.isclass(kind)
            and issubclass(kind, Exception)
            and kind.__module__ == module.__name__
        ):
            yield f"**`{name}`** ({', '.join(base.__name__ for base in kind.__bases__)})\n\n{_text(kind)}\n"


def _is_documented(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod))


def _signature(member: object) -> str:
    if isinstance(member, property):
        return ""
    function = getattr(member, "__func__", member)
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    # remove the quotes of postponed annotations, which are strings
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature.replace(parameters=parameters)))


def _text(thing: object) -> str:
    if inspect.isclass(thing) and issubclass(thing, Enum):
        return ", ".join(f"`{item.name}`" for item in thing)
    return inspect.getdoc(thing) or ""
