"""The log of requests to the server."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_CAPACITY = 100_000


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """A request in the log."""

    verb: str  # as in RBAC; for paths without objects, the HTTP method in lower case
    path: str
    resource: str
    namespace: str
    name: str
    user_agent: str
    time: float


class RequestLog:
    """The newest requests in order, and the number of all requests."""

    def __init__(self) -> None:
        self._requests: deque[LoggedRequest] = deque(maxlen=_CAPACITY)
        self.total = 0

    def add(self, request: LoggedRequest) -> None:
        self._requests.append(request)
        self.total += 1

    def find(
        self, verb: str = "", resource: str = "", name: str = "", agent: str = ""
    ) -> list[LoggedRequest]:
        """Return the requests that match all arguments that are not empty. `agent` is a part of the user agent."""
        return [
            r
            for r in self._requests
            if (not verb or r.verb == verb)
            and (not resource or r.resource == resource)
            and (not name or r.name == name)
            and agent in r.user_agent
        ]

    def clear(self) -> None:
        self._requests.clear()
        self.total = 0
