"""The client: what a coordinator, a process or an observer asks of servers."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration

from stickycas._servers import Response, Route, Servers
from stickycas.errors import Lost, Refused, StickyCasError, Unreachable, from_rpc_error
from stickycas.process import AttachedProcess, Process, Strategy, UnaryProcess, correct, entered
from stickycas.v1 import history_pb2, instance_pb2, instance_service_pb2

_ID = re.compile("[0-9a-f]{32}")


class Client:
    """One principal at a server, or at several servers of a cluster.

    `http://` is for servers that believe the name of a `principal` (for development); `https://` goes with `credentials`,
    the folder with `ca.crt` and either `tls.crt` and `tls.key` or `token`. Nobody answers for `give_up_after` seconds: then a
    call raises `Unreachable`. Waiting for a phase has no limit. Use it as `async with Client(...) as client`.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        *,
        credentials: str | os.PathLike[str] | None = None,
        principal: str | None = None,
        give_up_after: float = 30.0,
    ) -> None:
        urls = server.split(",") if isinstance(server, str) else list(server)
        folder = Path(credentials) if credentials is not None else None
        self._servers = Servers(urls, folder, principal, give_up_after)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._servers.close()

    async def create(
        self,
        name: str = "",
        *,
        roster: Sequence[str],
        warp_size: int = 1,
        read_size: int | None = None,
        patience: float | timedelta | None = None,
        join_timeout: float | timedelta | None = None,
        pace: float | timedelta | None = None,
        **parameters: Any,
    ) -> instance_pb2.Instance:
        """Creates an instance; with a name it may be repeated, and finds the one that is there.

        `roster`: the principals of processes 1, 2, ...; `read_size`: by default one for each process; times are in seconds.
        `parameters`: further ones of `Parameters` in instance.proto.
        """
        times = {"patience": patience, "join_timeout": join_timeout, "pace": pace}
        given: dict[str, Any] = {key: _duration(time) for key, time in times.items() if time is not None}
        wanted = instance_pb2.Parameters(
            processes=len(roster),
            warp_size=warp_size,
            read_size=read_size or len(roster),
            **given,
            **parameters,
        )
        request = instance_service_pb2.CreateRequest(name=name, roster=roster, parameters=wanted)
        created = await self._call("Create", request, instance_service_pb2.CreateResponse)
        return created.instance

    async def get(self, instance: str) -> instance_service_pb2.GetResponse:
        """An instance by id or name: what was fixed when it was created, its status, and the state of the caller's process."""
        is_id = _ID.fullmatch(instance) is not None
        named: dict[str, Any] = {"instance_id" if is_id else "name": instance}
        request = instance_service_pb2.GetRequest(**named)
        response = instance_service_pb2.GetResponse
        return await self._call("Get", request, response, instance if is_id else "")

    async def list(
        self, *, states: Iterable[instance_pb2.State] = (), text: str = ""
    ) -> AsyncIterator[instance_pb2.InstanceSummary]:
        """The instances that the caller may see, of all servers, each server's by id: in these states, with this in their name."""
        left, asked = [Route(self._servers).server], set[str]()
        while left:
            server = left.pop()
            asked.add(server)
            token = ""
            while True:
                request = instance_service_pb2.ListRequest(states=list(states), text=text, page_token=token)
                page = await self._servers.call_at(
                    server, "InstanceService/List", request, instance_service_pb2.ListResponse, 10.0
                )
                for summary in page.instances:
                    yield summary
                for other in page.other_servers:
                    if other not in asked and other not in left and await self._servers.may_ask(other):
                        left.append(other)
                token = page.next_page_token
                if not token:
                    break

    async def close_instance(self, instance_id: str) -> None:
        """Closes an instance that the caller has created: no process acts there any more."""
        request = instance_service_pb2.CloseRequest(instance_id=instance_id)
        await self._call("Close", request, instance_service_pb2.CloseResponse, instance_id)

    async def propose(self, instance: str, value: bytes, *, unary: bool = False) -> bytes:
        """Plays the caller's process at an instance, as a correct one that proposes this value; returns its decision.

        If an earlier life of it has acted before, it goes on where that ended.
        """
        return await self.play(instance, correct(value), unary=unary)

    async def play(self, instance: str, strategy: Strategy, *, unary: bool = False) -> bytes:
        """Plays the caller's process by a strategy of one's own; returns what that returns.

        Over the stream Attach, or with `unary` by a call for each access.
        """
        found = await self.get(instance)
        if not found.HasField("own"):
            raise Refused(
                "NOT_A_MEMBER", grpc.StatusCode.PERMISSION_DENIED, f"the caller is no process of {instance}"
            )
        kind = UnaryProcess if unary else AttachedProcess
        process: Process
        with entered(kind(self._servers, found)) as process:
            return await strategy(process)

    async def watch(self, instance: str) -> AsyncIterator[history_pb2.Event]:
        """The events of an instance from the first that is kept to its end, each once, over broken streams.

        Raises `Lost` when events are missing. A process never decides by this (SPEC F13).
        """
        found = (await self.get(instance)).instance.instance_id
        route = Route(self._servers, found)
        next_index: int | None = None
        phase = 0
        while True:
            connect: Any = self._servers.channel(route.server).unary_stream(
                "/stickycas.v1.InstanceService/Watch",
                request_serializer=instance_service_pb2.WatchRequest.SerializeToString,
                response_deserializer=instance_service_pb2.WatchResponse.FromString,
            )
            request = instance_service_pb2.WatchRequest(instance_id=found, from_phase=phase)
            try:
                async for message in connect(request, metadata=self._servers.metadata()):
                    route.note_answer()
                    for event in message.events.events:
                        if next_index is not None and event.index > next_index:
                            raise Lost(f"events {next_index} to {event.index - 1} are missing")
                        if next_index is not None and event.index < next_index:
                            continue
                        next_index = event.index + 1
                        phase = event.stepped.phase if event.HasField("stepped") else phase
                        yield event
                        if event.HasField("finished") or event.HasField("closed"):
                            return
                error: StickyCasError = Unreachable("the stream has ended")
            except grpc.RpcError as ended:
                error = from_rpc_error(ended)
            await route.next_try(error)

    async def _call(
        self, method: str, request: Any, response: type[Response], instance_id: str = ""
    ) -> Response:
        return await self._servers.call(f"InstanceService/{method}", request, response, instance_id)


def _duration(time: float | timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(time if isinstance(time, timedelta) else timedelta(seconds=time))
    return duration
