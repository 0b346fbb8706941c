"""The routes below `/hai_jupyter`, and their handlers."""

from __future__ import annotations

from tornado.web import RequestHandler

from hai_jupyter.handlers.account import (
    GroupsHandler,
    ManualHandler,
    MeHandler,
    MemoryHandler,
    MessagesHandler,
    SavedHandler,
    WorkspacesHandler,
)
from hai_jupyter.handlers.artifacts import ArtifactsHandler
from hai_jupyter.handlers.checks import NodeCheckHandler
from hai_jupyter.handlers.containers import (
    ACTIONS,
    ContainerHandler,
    ContainersHandler,
    OpenHandler,
    RenewHandler,
    ServiceHandler,
)
from hai_jupyter.handlers.environments import CommandHandler, EnvironmentsHandler
from hai_jupyter.handlers.live import EventsSocket, StateHandler
from hai_jupyter.handlers.logs import LogFileHandler, LogSocket
from hai_jupyter.handlers.notebook import ClearHandler, ScriptHandler
from hai_jupyter.handlers.submit import CheckHandler, DraftHandler, SchemaHandler, SubmitHandler
from hai_jupyter.handlers.tasks import VERBS, ExecutedHandler, TaskHandler, VerbHandler
from hai_jupyter.handlers.usage import UsageHandler, UsesHandler
from hai_jupyter.handlers.workspace import VERBS as SYNCS
from hai_jupyter.handlers.workspace import WorkspaceHandler, WorkspaceVerbHandler

_ROUTES: tuple[tuple[str, type[RequestHandler]], ...] = (
    (r"events", EventsSocket),
    (r"state", StateHandler),
    (r"me", MeHandler),
    (r"groups", GroupsHandler),
    (r"messages", MessagesHandler),
    (r"environments", EnvironmentsHandler),
    (r"environments/command", CommandHandler),
    (r"manual", ManualHandler),
    (r"usage", UsesHandler),
    (r"nodes/check", NodeCheckHandler),
    (r"workspaces", WorkspacesHandler),
    (r"memory", MemoryHandler),
    (r"tasks/(\d{1,18})", TaskHandler),
    (r"tasks/(\d{1,18})/usage", UsageHandler),
    (r"tasks/(\d{1,18})/executed", ExecutedHandler),
    (r"tasks/(\d{1,18})/log", LogSocket),
    (r"tasks/(\d{1,18})/log.txt", LogFileHandler),
    (rf"tasks/(\d{{1,18}})/({VERBS})", VerbHandler),
    (r"artifacts", ArtifactsHandler),
    (r"containers", ContainersHandler),
    (r"containers/(\d{1,18})", ContainerHandler),
    (r"containers/(\d{1,18})/open", OpenHandler),
    (r"containers/(\d{1,18})/renew", RenewHandler),
    (rf"containers/(\d{{1,18}})/services/([a-z0-9-]{{1,63}})/({ACTIONS})", ServiceHandler),
    (r"workspace", WorkspaceHandler),
    (rf"workspace/({SYNCS})", WorkspaceVerbHandler),
    (r"notebook/script", ScriptHandler),
    (r"notebook/clear", ClearHandler),
    (r"saved", SavedHandler),
    (r"draft", DraftHandler),
    (r"check", CheckHandler),
    (r"submit", SubmitHandler),
    (r"schema", SchemaHandler),
)


def routes() -> list[tuple[str, type[RequestHandler]]]:
    """Return the routes; Jupyter puts its base URL before them."""
    return [(f"/hai_jupyter/{pattern}", handler) for pattern, handler in _ROUTES]
