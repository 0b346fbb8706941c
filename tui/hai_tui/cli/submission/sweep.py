"""`--array 1-10` and `--each LR=0.1,0.01`: one task for each element. All tasks of a sweep have a tag in common."""

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
_MAX_TASKS = 1000
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?", re.ASCII)
_COMMA = re.compile(r"(?<!\\),")  # as in Hydra: \, is a comma within a value
_BRACES = re.compile(r"\{(\w+)\}")
_PLAIN = re.compile(r"[A-Za-z0-9._+-]{1,40}")


class Element(NamedTuple):
    """An element of a sweep: the suffix of its task's name, and the variables of its program."""

    label: str
    variables: Mapping[str, str]


class Array(NamedTuple):
    """The indexes of an array, and how many tasks may run at a time; 0 means all."""

    indexes: tuple[int, ...]
    at_most: int


class ArrayType(click.ParamType[Array]):
    """An array on the command line, such as 1-10, 0-90:10 or 1,5,7. The suffix %3 lets three tasks run at a time."""

    name = "1-10[%N]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Array:
        text, percent, most = str(value).partition("%")
        ranges = [_RANGE.fullmatch(part) for part in text.split(",")]
        found = dict.fromkeys(n for each in ranges if each for n in _index_range(each))
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
    """Values on the command line, such as LR=0.1,0.01. `\\\\,` stands for a comma within a value."""

    name = "NAME=V,V…"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Each:
        name, equals, values = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not as LR=0.1,0.01", param, ctx)
        parts = (part.replace(r"\,", ",") for part in _COMMA.split(values))
        return Each(name, tuple(dict.fromkeys(parts)))


class Sweep(NamedTuple):
    """The tasks of all elements. The tag is empty if there is no array and no --each."""

    specs: Sequence[TaskSpec]
    at_most: int = 0
    tag: str = ""


def make_sweep(specs: Sequence[TaskSpec], options: Mapping[str, Any]) -> Sweep:
    """Return each task once for each element. Raise UsageError."""
    array, each = options["array"], options["each"]
    at_most = options["at_most"] or (array.at_most if array else 0)
    if not array and not each:
        return Sweep(specs, at_most)
    _require_possible(array, each, len(specs))
    found = _make_elements(array, each)
    tag = (
        f"{re.sub(r'[^A-Za-z0-9._-]', '-', specs[0].name)[:40].lstrip('_')}-{secrets.token_hex(2)}"
    )
    return Sweep([_make_task(spec, each, tag) for spec in specs for each in found], at_most, tag)


def _index_range(found: re.Match[str]) -> range:
    """Return the indexes of one part of an array, at most one more than allowed."""
    first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
    return range(first, min(last, first + _MAX_TASKS * step) + 1, step)


def _require_possible(array: Array | None, each: Sequence[Each], files: int) -> None:
    """Raise UsageError if the sweep is impossible. Called before the elements are made: they may not fit in memory."""
    if array and each:
        raise click.UsageError("say --array or --each; with --each, elements are counted from 1")
    names = [one.name for one in each]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise click.UsageError(f"--each {twice[0]} is there twice; say all its values in one")
    if reserved := sorted({INDEX, SIZE} & set(names)):
        raise click.UsageError(f"--each {reserved[0]}: each task gets that anyway; see --array")
    count = files * (len(array.indexes) if array else prod(len(one.values) for one in each))
    if count > _MAX_TASKS:
        raise click.UsageError(f"that is {count} tasks; at most {_MAX_TASKS} at once")


def _make_elements(array: Array | None, each: Sequence[Each]) -> list[Element]:
    """Return the elements. Their labels are the values if these are plain and distinct, else numbers."""
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


def _make_task(spec: TaskSpec, element: Element, tag: str) -> TaskSpec:
    """Return the task of an element. In arguments of the program, {NAME} is replaced by the variable's value."""
    task_spec = type(spec)()
    task_spec.CopyFrom(spec)
    task_spec.name = f"{spec.name}-{element.label}"
    task_spec.options.tags.append(tag)
    task_spec.spec.environments.update(element.variables)
    variables = element.variables
    for words in (task_spec.spec.parameters, *(role.parameters for role in task_spec.roles)):
        words[:] = [_BRACES.sub(lambda match: variables.get(match[1], match[0]), w) for w in words]
    return task_spec
