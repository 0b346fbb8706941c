"""ServerService: version and name of this server. It needs no token, so it returns nothing confidential."""

from __future__ import annotations

from importlib.metadata import version

from hai.v1 import server_service_pb2 as pb
from hai.v1.server_service_pb2_grpc import ServerServiceServicer
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.api.server.call_context import Context
from hai_backend.api.server.certificates import Certificates
from hai_backend.controllers.aio.clock import Clock

PROTOCOL = "hai.v1"


class ServerService(ServerServiceServicer):
    """See proto/hai/v1/server_service.proto for what each call means."""

    def __init__(
        self, cluster: str, launcher: str, clock: Clock, certificates: Certificates | None
    ) -> None:
        self._cluster = cluster
        self._launcher = launcher
        self._clock = clock
        self._certificates = certificates
        self._started = clock.now()
        self._version = version("hai-platform")

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: Context
    ) -> pb.ServerInfo:
        pair = self._certificates.current if self._certificates is not None else None
        return pb.ServerInfo(
            version=self._version,
            protocol=PROTOCOL,
            cluster=self._cluster,
            launcher=self._launcher,
            time=to_timestamp(self._clock.now()),
            start_time=to_timestamp(self._started),
            certificate_expire_time=to_timestamp(pair.expires) if pair is not None else None,
        )
