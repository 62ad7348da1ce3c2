"""The events of an instance, over broken streams and from one owner to the next."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import grpc
import grpc.aio

from stickycas._servers import Route, Servers
from stickycas.errors import Lost, StickyCasError, Unreachable, from_rpc_error
from stickycas.v1 import history_pb2, instance_service_pb2

# A server that is alone tells in the initial metadata the index of the event that comes next.
NEXT_EVENT = "stickycas-next-event"


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
    ended = False
    while True:
        stream = None
        try:
            await servers.probe(route.server)
            stream = _open(servers, route.server, instance_id, seen.phase)
            for key, value in await stream.initial_metadata():
                if key == NEXT_EVENT and value.isdecimal():
                    seen.compare(int(value))
            behind, seen.resumed = 0, seen.behind > 0
            async for message in stream:
                route.note_answer()
                for event in message.events.events:
                    behind = event.index + 1
                    if not seen.take(event):
                        continue
                    ended = False
                    yield event
                    if event.HasField("finished") or event.HasField("closed"):
                        return
            # The end of the history, as of one that has expired; or of a stream that somebody has cut: once more.
            if ended:
                seen.compare(behind)
                return
            ended = True
            error: StickyCasError = Unreachable("the stream has ended")
        except grpc.RpcError as broken:
            error = from_rpc_error(broken, of_stream=True)
        except Unreachable as silent:
            error = silent
        finally:
            if stream is not None:
                stream.cancel()
        await route.next_try(error)


def _open(servers: Servers, server: str, instance_id: str, phase: int) -> Any:
    connect: Any = servers.channel(server).unary_stream(
        "/stickycas.v1.InstanceService/Watch",
        request_serializer=instance_service_pb2.WatchRequest.SerializeToString,
        response_deserializer=instance_service_pb2.WatchResponse.FromString,
    )
    request = instance_service_pb2.WatchRequest(instance_id=instance_id, from_phase=phase)
    return connect(request, metadata=servers.metadata())
