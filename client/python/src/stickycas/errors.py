"""What can go wrong, and what that means for the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

DOMAIN = "stickycas.v1"

_RETRY_CODES = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL,
}
# Reasons by which a request may have happened; so it may with reasons that are not known here.
_MAY_HAVE_HAPPENED = {
    "DRAINING",
    "DEADLINE",
    "INTERNAL",
    "LOG_FAILED",
    "OWNER_LOST",
    "READER_TOO_SLOW",
    "REQUEST_TOO_SLOW",
    "TOO_MANY_BYTES",
}
# Without a reason of StickyCAS: something else answers at this address, or refuses to let the call through.
_NO_STICKYCAS = {
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
}


class StickyCasError(Exception):
    """The base of all errors of this package."""

    may_retry = False
    """Whether the very same request again is safe and may succeed. The package has done so before it raises this."""
    may_have_happened = False
    """Whether the request may have been executed, or may still be."""


class Refused(StickyCasError):
    """The server has refused a request, for a reason of `errors.proto` (SPEC section 11)."""

    def __init__(
        self,
        reason: str,
        code: grpc.StatusCode,
        message: str,
        metadata: Mapping[str, str] | None = None,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason, self.code, self.message = reason, code, message
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after
        """The seconds to wait before a retry, as the server advises."""
        self.may_retry = code in _RETRY_CODES and reason != "TOO_MANY_SESSIONS"
        self.may_have_happened = reason in _MAY_HAVE_HAPPENED or reason not in _known_reasons()

    @property
    def owner(self) -> tuple[str, int] | None:
        """The address of the server that owns the instance, and the epoch of that, if the server tells."""
        address, epoch = self.metadata.get("owner"), self.metadata.get("epoch", "")
        return (address, int(epoch)) if address and epoch.isdecimal() else None


class Unreachable(StickyCasError):
    """No server has answered, or the connection broke."""

    may_retry = True
    may_have_happened = True

    def __init__(self, message: str = "", *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        """Whether a call was given up after its time, and nothing else is known."""


class NotStickyCas(StickyCasError):
    """What answers at this address is no StickyCAS server, or something before it refuses the call."""


class Replaced(StickyCasError):
    """Another client has opened a session of the same process: this one must not come back (SPEC F8f)."""


class Lost(StickyCasError):
    """The server shows less than before, or something else: its memory was lost (SPEC A3, R2)."""


class NoDecision(StickyCasError):
    """A correct process cannot decide: the list is sealed without any entry, or the instance is none that it can play."""


def from_rpc_error(error: grpc.RpcError, *, of_stream: bool = False) -> StickyCasError:
    """The error of a call or stream that ended with a status.

    A stream that ends without a reason of StickyCAS is a broken connection, whatever its code: proxies make such ends.
    """
    code, message, details = error.code(), error.details() or "", _details(error)
    info, delay = None, 0.0
    for detail in details:
        found, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(found) and found.domain == DOMAIN:
            info = found
        elif detail.Unpack(retry):
            delay = retry.retry_delay.ToTimedelta().total_seconds()
    if info is not None:
        return Refused(info.reason, code, message, info.metadata, delay)
    if code in _NO_STICKYCAS and not of_stream:
        return NotStickyCas(f"{code.name}: {message}")
    timed_out = code == grpc.StatusCode.DEADLINE_EXCEEDED and not of_stream
    return Unreachable(f"{code.name}: {message}", timed_out=timed_out)


def _details(error: grpc.RpcError) -> list[any_pb2.Any]:
    trailers: Any = error.trailing_metadata() or ()
    for key, value in trailers:
        if key == "grpc-status-details-bin":
            return list(status_pb2.Status.FromString(value).details)
    return []


def _known_reasons() -> set[str]:
    from stickycas.v1 import errors_pb2

    return {name.removeprefix("REFUSAL_REASON_") for name in errors_pb2.RefusalReason.keys()}  # noqa: SIM118
