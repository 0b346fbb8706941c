"""Distinguishes a server that is unavailable, which is temporary, from one that rejects this rank, which is final."""

from __future__ import annotations

import grpc
import grpc.aio

_REJECTIONS = (
    grpc.StatusCode.UNAUTHENTICATED,  # the run token is not good any more
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,  # the server knows no such task
)


def is_rejected(error: grpc.aio.AioRpcError) -> bool:
    """Whether the server rejects this rank, so that its program must be ended."""
    if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
        return "FENCED" in _reasons(error)
    return error.code() in _REJECTIONS


def _reasons(error: grpc.aio.AioRpcError) -> set[str]:
    from google.rpc import error_details_pb2, status_pb2

    found = set()
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    found.add(info.reason)
    return found
