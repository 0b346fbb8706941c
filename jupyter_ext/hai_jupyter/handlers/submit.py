"""Submission: what would be sent, and sending it."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

from hai.client.errors import HaiError, Invalid
from hai.client.taskfile.spec import json_schema, read_spec, to_yaml
from hai.client.taskfile.writer import to_mapping
from hai.v1.task_spec_pb2 import TaskSpec
from hai_jupyter import errors, submission, submission_history, syncing
from hai_jupyter.errors import invalid
from hai_jupyter.handlers import artifacts
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.live.rows import task_row
from hai_jupyter.notebooks import submission as notebooks

_NAMES = uuid.UUID("0b7d1f3a-02b1-4b77-93f5-7b5f6bd1c0de")


class DraftHandler(Handler):
    """What the form begins with. Storage may be slow, as in all of these: Jupyter's loop does not wait for it."""

    @answers
    async def get(self) -> Any:
        """The name, the word that makes tabs agree, the parameters of a notebook, and how it ran last time.

        A task file says itself how it is to run.
        """
        path = self.get_query_argument("path", "")
        cells = () if self.get_query_argument("cells", "") else None
        source = submission.Source(path, cells, {}, {})
        said, stored = await asyncio.to_thread(self._stored, source)
        name = (said and said.name) or submission.default_name(source)
        begin = said or await submission.last_spec(self.client, name)
        return {
            "name": name,
            "draft": await submission.draft(self.client, name),
            "begin": to_mapping(begin) if begin is not None else None,
            **stored,
        }

    def _stored(self, source: submission.Source) -> tuple[TaskSpec | None, dict[str, Any]]:
        file = self.backend.contents_paths.file(source.path)
        name = submission.default_name(source)
        return submission.task_file(file), {
            "parameters": notebooks.parameters_of(file) if file.suffix == ".ipynb" else [],
            "workspace": self._workspace(file),
            "changes": submission_history.changes(name, file) if source.cells is None else None,
        }

    def _workspace(self, file: Path) -> str:
        """The name of the one that the file is in; empty: none."""
        found = syncing.workspace_of(
            file.resolve().parent, self.backend.contents_paths.root.resolve()
        )
        return syncing.name_of(found) if found is not None else ""


class CheckHandler(Handler):
    """The task file of what is on the screen, and what the scheduler would do with it."""

    @answers
    async def post(self) -> Any:
        """Refused by rules: the task file with the violations. Nothing is stored or written."""
        spec = await _spec(self, write=False)
        answer: dict[str, Any] = {"yaml": to_yaml(spec), "spec": to_mapping(spec)}
        try:
            outcome = await self.client.tasks.dry_run(spec)
        except HaiError as error:
            return {**answer, "error": errors.body(error)}
        return {**answer, "outcome": outcome.outcome, "message": outcome.message}


class SubmitHandler(Handler):
    """Hand a task in."""

    @answers
    async def post(self) -> Any:
        """The task. The same thing handed in again, from any tab, is the same task."""
        word = self.body().get("draft")
        if not isinstance(word, str) or not word:
            raise invalid(("draft", "must be the word that the draft came with"))
        named = artifacts.read_artifacts(self.body())
        spec = await _spec(self, write=True)
        if self.body().get("push") is True:
            root = self.backend.contents_paths.root.resolve()
            await syncing.push_for(spec, root, self.backend.client_provider.profile())
        request_id = str(uuid.uuid5(_NAMES, f"{word}\n{to_yaml(spec)}"))
        task = await self.client.tasks.create(spec, request_id=request_id)
        await artifacts.map_artifacts(self.client, task.id, named)
        await asyncio.to_thread(self._keep)
        return task_row(task)

    def _keep(self) -> None:
        data = self.body()
        if data.get("path") and data.get("cells") is None:
            source = submission.read_source(data)
            name = submission.default_name(source)
            submission_history.save(name, self.backend.contents_paths.file(source.path))


class SchemaHandler(Handler):
    """What may stand in a task file."""

    @answers
    async def get(self) -> Any:
        """JSON schema."""
        return json_schema()


async def _spec(handler: Handler, *, write: bool) -> TaskSpec:
    data = handler.body()
    text = data.get("yaml")
    if text is None or write:  # also with a task file: the copy of a notebook must be there
        source = submission.read_source(data) if "path" in data or text is None else None
        if source is not None:
            python = await submission.runner_python(handler.client)
            contents_paths = handler.backend.contents_paths
            composed = await asyncio.to_thread(
                submission.compose, source, contents_paths, python, write=write
            )
            if text is None:
                return composed
    if not isinstance(text, str):
        raise Invalid("the task file must be a text", ())
    return read_spec(text + "\n", rules=False)
