"""`--array 1-10` and `--each LR=0.1,0.01`: a task for each element, ordinary ones that have a tag in common."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from hai.v1.task_spec_pb2 import TaskSpec

INDEX, SIZE = "HAI_ARRAY_INDEX", "HAI_ARRAY_SIZE"
_MOST = 1000
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?", re.ASCII)
_COMMA = re.compile(r"(?<!\\),")  # as Hydra's: \, stands in a value
_BRACES = re.compile(r"\{(\w+)\}")
_PLAIN = re.compile(r"[A-Za-z0-9._+-]{1,40}")


class Element(NamedTuple):
    """What its task is called after the name, and what its program finds in its environment."""

    label: str
    variables: Mapping[str, str]


class Array(NamedTuple):
    """Numbers of elements, and how many may be under way at a time; 0: all."""

    indexes: tuple[int, ...]
    at_most: int


class ArrayType(click.ParamType[Array]):
    """1-10, 0-90:10, 1,5,7; %3 at its end: three at a time."""

    name = "1-10[%N]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Array:
        """Raises click.BadParameter."""
        text, percent, most = str(value).partition("%")
        ranges = [_RANGE.fullmatch(part) for part in text.split(",")]
        found = dict.fromkeys(n for each in ranges if each for n in _numbers(each))
        if None in ranges or not found or not re.fullmatch(r"[0-9]{0,9}", most):
            self.fail(f"{value!r} is not as 1-10, 0-90:10, 1,5,7 or 1-10%3", param, ctx)
        if percent and not int(most or 0):
            self.fail(f"{value!r}: at least one at a time; without %, all at once", param, ctx)
        return Array(tuple(found), int(most or 0))


class Each(NamedTuple):
    """A variable and its values."""

    name: str
    values: tuple[str, ...]


class EachType(click.ParamType[Each]):
    """LR=0.1,0.01; with \\, a value has a comma."""

    name = "NAME=V,V…"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Each:
        """Raises click.BadParameter."""
        name, equals, values = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not as LR=0.1,0.01", param, ctx)
        parts = (part.replace(r"\,", ",") for part in _COMMA.split(values))
        return Each(name, tuple(dict.fromkeys(parts)))


class Sweep(NamedTuple):
    """The tasks of all elements; none has a tag where there is only one each."""

    specs: Sequence[TaskSpec]
    at_most: int = 0
    tag: str = ""


def swept(specs: Sequence[TaskSpec], options: Mapping[str, Any]) -> Sweep:
    """Each task once for each element. Raises click.UsageError."""
    array, each = options["array"], options["each"]
    at_most = options["at_most"] or (array.at_most if array else 0)
    if not array and not each:
        return Sweep(specs, at_most)
    _check(array, each, len(specs))
    found = _elements(array, each)
    tag = (
        f"{re.sub(r'[^A-Za-z0-9._-]', '-', specs[0].name)[:40].lstrip('_')}-{secrets.token_hex(2)}"
    )
    return Sweep([_task(spec, each, tag) for spec in specs for each in found], at_most, tag)


def _numbers(found: re.Match[str]) -> range:
    first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
    return range(first, min(last, first + _MOST * step) + 1, step)


def _check(array: Array | None, each: Sequence[Each], files: int) -> None:
    """Before elements are made of it, for they may be more than memory holds."""
    if array and each:
        raise click.UsageError("say --array or --each; with --each, elements are counted from 1")
    names = [one.name for one in each]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise click.UsageError(f"--each {twice[0]} is there twice; say all its values in one")
    if reserved := sorted({INDEX, SIZE} & set(names)):
        raise click.UsageError(f"--each {reserved[0]}: each task gets that anyway; see --array")
    count = files * (len(array.indexes) if array else prod(len(one.values) for one in each))
    if count > _MOST:
        raise click.UsageError(f"that is {count} tasks; at most {_MOST} at once")


def _elements(array: Array | None, each: Sequence[Each]) -> list[Element]:
    if array:
        rows: list[tuple[int, dict[str, str]]] = [(index, {}) for index in array.indexes]
    else:
        combined = product(*([(one.name, value) for value in one.values] for one in each))
        rows = [(index, dict(pairs)) for index, pairs in enumerate(combined, 1)]
    labels = ["-".join(variables.values()) for _, variables in rows]
    distinct = all(map(_PLAIN.fullmatch, labels)) and len(set(labels)) == len(labels)
    return [
        Element(
            labels[position] if distinct else str(index),
            {**variables, INDEX: str(index), SIZE: str(len(rows))},
        )
        for position, (index, variables) in enumerate(rows)
    ]


def _task(spec: TaskSpec, element: Element, tag: str) -> TaskSpec:
    """Its own name, tag and variables; {NAME} in an argument of the program is the variable's value."""
    made = type(spec)()
    made.CopyFrom(spec)
    made.name = f"{spec.name}-{element.label}"
    made.options.tags.append(tag)
    made.spec.environments.update(element.variables)
    known = element.variables
    for words in (made.spec.parameters, *(role.parameters for role in made.roles)):
        words[:] = [_BRACES.sub(lambda found: known.get(found[1], found[0]), w) for w in words]
    return made
