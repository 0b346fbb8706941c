"""Handlers of submissions: the draft of the form, its check, and the submission itself."""

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

_REQUEST_NAMESPACE = uuid.UUID("0b7d1f3a-02b1-4b77-93f5-7b5f6bd1c0de")


class DraftHandler(Handler):
    """The draft with which the form begins. All handlers here read storage, which may be slow, in a thread."""

    @answers
    async def get(self) -> Any:
        """Return the name, the draft word that all tabs share, the parameters of a notebook, and the last spec.

        A task file contains its spec itself.
        """
        path = self.get_query_argument("path", "")
        cells = () if self.get_query_argument("cells", "") else None
        source = submission.Source(path, cells, {}, {})
        file_spec, facts = await asyncio.to_thread(self._read_file, source)
        name = (file_spec and file_spec.name) or submission.default_name(source)
        spec = file_spec or await submission.last_spec(self.client, name)
        return {
            "name": name,
            "draft": await submission.draft_word(self.client, name),
            "begin": to_mapping(spec) if spec is not None else None,
            **facts,
        }

    def _read_file(self, source: submission.Source) -> tuple[TaskSpec | None, dict[str, Any]]:
        file = self.shared.contents_paths.file(source.path)
        name = submission.default_name(source)
        return submission.read_task_file(file), {
            "parameters": notebooks.parameter_lines(file) if file.suffix == ".ipynb" else [],
            "workspace": self._workspace_name(file),
            "changes": submission_history.changes(name, file) if source.cells is None else None,
        }

    def _workspace_name(self, file: Path) -> str:
        """Return the name of the workspace that contains the file; empty if there is none."""
        root = self.shared.contents_paths.root.resolve()
        workspace = syncing.workspace_of(file.resolve().parent, root)
        return syncing.name_of(workspace) if workspace is not None else ""


class CheckHandler(Handler):
    """The task file of the form, and what the scheduler would do with it."""

    @answers
    async def post(self) -> Any:
        """Return the task file, with violations if a rule refuses it. Stores and writes nothing."""
        spec = await _spec(self, write=False)
        answer: dict[str, Any] = {"yaml": to_yaml(spec), "spec": to_mapping(spec)}
        try:
            outcome = await self.client.tasks.dry_run(spec)
        except HaiError as error:
            return {**answer, "error": errors.body(error)}
        return {**answer, "outcome": outcome.outcome, "message": outcome.message}


class SubmitHandler(Handler):
    """A submission."""

    @answers
    async def post(self) -> Any:
        """Return the task. Submitting the same draft again, from any tab, returns the same task."""
        word = self.body().get("draft")
        if not isinstance(word, str) or not word:
            raise invalid(("draft", "must be the word that the draft came with"))
        mapped_artifacts = artifacts.read_artifacts(self.body())
        spec = await _spec(self, write=True)
        if self.body().get("push") is True:
            root = self.shared.contents_paths.root.resolve()
            await syncing.push_for(spec, root, self.shared.client_provider.profile())
        request_id = str(uuid.uuid5(_REQUEST_NAMESPACE, f"{word}\n{to_yaml(spec)}"))
        task = await self.client.tasks.create(spec, request_id=request_id)
        await artifacts.map_artifacts(self.client, task.id, mapped_artifacts)
        await asyncio.to_thread(self._save_history)
        return task_row(task)

    def _save_history(self) -> None:
        data = self.body()
        if data.get("path") and data.get("cells") is None:
            source = submission.read_source(data)
            name = submission.default_name(source)
            submission_history.save(name, self.shared.contents_paths.file(source.path))


class SchemaHandler(Handler):
    """The JSON schema of task files."""

    @answers
    async def get(self) -> Any:
        return json_schema()


async def _spec(handler: Handler, *, write: bool) -> TaskSpec:
    data = handler.body()
    text = data.get("yaml")
    # A submission needs the copy of the notebook even with an edited task file.
    if text is None or write:
        source = submission.read_source(data) if "path" in data or text is None else None
        if source is not None:
            python = await submission.runner_python(handler.client)
            contents_paths = handler.shared.contents_paths
            composed = await asyncio.to_thread(
                submission.compose, source, contents_paths, python, write=write
            )
            if text is None:
                return composed
    if not isinstance(text, str):
        raise Invalid("the task file must be a text", ())
    return read_spec(text + "\n", rules=False)
