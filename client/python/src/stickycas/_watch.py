"""The events of an instance, over broken streams and from one owner to the next."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import grpc
import grpc.aio

from stickycas._servers import Route, Servers
from stickycas.errors import Lost, Refused, StickyCasError, Unreachable, from_rpc_error
from stickycas.v1 import history_pb2, instance_pb2, instance_service_pb2

# A server that is alone tells in the initial metadata the index of the event that comes next.
NEXT_EVENT = "stickycas-next-event"
_OVER = {instance_pb2.STATE_FINISHED, instance_pb2.STATE_CLOSED}


class _Seen:
    """What was given of a history."""

    def __init__(self) -> None:
        self.phase = 0
        # The events of that phase, which come again on the next stream, and the index behind them.
        self.latest: dict[int, history_pb2.Event] = {}
        self.behind = 0
        # Whether the last event is still to come again.
        self.resumed = False

    def take(self, event: history_pb2.Event) -> bool:
        """Whether the event is new. Raises `Lost` if it shows another history."""
        first = self.behind - 1 if self.resumed else self.behind
        if self.latest and event.index > first:
            raise Lost(f"events {first} to {event.index - 1} are missing")
        if self.latest.get(event.index, event) != event:
            raise Lost(f"event {event.index} is not what it was")
        if self.latest and event.index < self.behind:
            self.resumed = self.resumed and event.index < first
            return False
        if event.HasField("stepped"):
            self.phase, self.latest = event.stepped.phase, {}
        self.latest[event.index], self.behind = event, event.index + 1
        return True

    def compare(self, number: int) -> None:
        """There are so many events. Raises `Lost` if there were more."""
        if number < self.behind:
            raise Lost(f"there were {self.behind} events, and now there are {number}")


async def events(servers: Servers, instance_id: str) -> AsyncGenerator[history_pb2.Event, None]:
    """See `Client.watch`."""
    route, seen = Route(servers, instance_id), _Seen()
    over = False
    while True:
        stream, broke = None, True
        try:
            await servers.probe(route.server)
            stream = _open(servers, route.server, instance_id, seen.phase)
            for key, value in await stream.initial_metadata():
                if key == NEXT_EVENT and value.isdecimal():
                    seen.compare(int(value))
            route.note_open()
            behind, seen.resumed = 0, seen.behind > 0
            async for message in stream:
                for event in message.events.events:
                    behind = event.index + 1
                    if not seen.take(event):
                        continue
                    route.note_answer()
                    over = False
                    yield event
                    if event.HasField("finished") or event.HasField("closed"):
                        return
            error: StickyCasError = Unreachable("the stream has ended")
            broke = False
        except grpc.RpcError as broken:
            error = from_rpc_error(broken, of_stream=True)
        except Unreachable as silent:
            error = silent
        finally:
            route.note_end()
            if stream is not None:
                stream.cancel()
        if not broke:
            # The end of the history, or of a stream that somebody has cut. It is the former if nothing more comes once the
            # instance itself has ended, or is not known any more.
            if over:
                seen.compare(behind)
                return
            state = await _state(servers, instance_id)
            if state is None:
                return
            over = state in _OVER
        await route.next_try(error)


async def _state(servers: Servers, instance_id: str) -> int | None:
    """The state of an instance; `None`: it has expired."""
    request = instance_service_pb2.GetRequest(instance_id=instance_id)
    response = instance_service_pb2.GetResponse
    try:
        found = await servers.call("InstanceService/Get", request, response, instance_id)
    except Refused as refused:
        if refused.reason == "INSTANCE_UNKNOWN":
            return None
        raise
    return found.status.state


def _open(servers: Servers, server: str, instance_id: str, phase: int) -> Any:
    connect: Any = servers.channel(server).unary_stream(
        "/stickycas.v1.InstanceService/Watch",
        request_serializer=instance_service_pb2.WatchRequest.SerializeToString,
        response_deserializer=instance_service_pb2.WatchResponse.FromString,
    )
    request = instance_service_pb2.WatchRequest(instance_id=instance_id, from_phase=phase)
    return connect(request, metadata=servers.metadata())
