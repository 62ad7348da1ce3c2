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

from stickycas._servers import CALL_TIMEOUT, Response, Route, Servers
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
    ) -> Sequence[instance_pb2.InstanceSummary]:
        """The instances that the caller may see, of all servers, by id: in these states, with this text in their name."""
        request = instance_service_pb2.ListRequest(states=list(states), text=text)
        route = Route(self._servers)
        while True:
            try:
                found: dict[str, instance_pb2.InstanceSummary] = {}
                left, asked = [route.server], set[str]()
                while left:
                    asked.add(server := left.pop())
                    summaries, others = await self._list_of(server, request)
                    for summary in summaries:
                        # An instance that moves meanwhile may come twice: no state comes again, so the later counts.
                        known = found.get(summary.instance_id)
                        if known is None or known.state < summary.state:
                            found[summary.instance_id] = summary
                    left += [it for it in others if it not in asked and it not in left]
                return [found[instance_id] for instance_id in sorted(found)]
            except StickyCasError as error:
                # By the next time others may own the instances of a server that does not answer.
                await route.next_try(error)

    async def _list_of(
        self, server: str, request: instance_service_pb2.ListRequest
    ) -> tuple[Sequence[instance_pb2.InstanceSummary], Sequence[str]]:
        """The instances of one server, and the other servers that may be asked."""
        summaries: list[instance_pb2.InstanceSummary] = []
        response = instance_service_pb2.ListResponse
        while True:
            page = await self._servers.call_at(
                server, "InstanceService/List", request, response, CALL_TIMEOUT
            )
            summaries += page.instances
            if not page.next_page_token:
                others = [it for it in page.other_servers if await self._servers.may_ask(it)]
                return summaries, others
            following = instance_service_pb2.ListRequest()
            following.CopyFrom(request)
            following.page_token = page.next_page_token
            request = following

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
        # The events of the latest phase, which come again on the next stream, and the index behind them.
        latest: dict[int, history_pb2.Event] = {}
        behind, phase, ended = 0, 0, False
        while True:
            connect: Any = self._servers.channel(route.server).unary_stream(
                "/stickycas.v1.InstanceService/Watch",
                request_serializer=instance_service_pb2.WatchRequest.SerializeToString,
                response_deserializer=instance_service_pb2.WatchResponse.FromString,
            )
            request = instance_service_pb2.WatchRequest(instance_id=found, from_phase=phase)
            seen = 0
            try:
                async for message in connect(request, metadata=self._servers.metadata()):
                    route.note_answer()
                    for event in message.events.events:
                        seen = event.index + 1
                        if latest and event.index > behind:
                            raise Lost(f"events {behind} to {event.index - 1} are missing")
                        if latest.get(event.index, event) != event:
                            raise Lost(f"event {event.index} is not what it was")
                        if latest and event.index < behind:
                            continue
                        if event.HasField("stepped"):
                            phase, latest = event.stepped.phase, {}
                        latest[event.index], behind, ended = event, event.index + 1, False
                        yield event
                        if event.HasField("finished") or event.HasField("closed"):
                            return
                if seen < behind:
                    raise Lost(f"there were {behind} events, and now there are {seen}")
                # The end of the history, as of one that has expired; or of a stream that somebody has cut: once more.
                if ended:
                    return
                ended = True
                error: StickyCasError = Unreachable("the stream has ended")
            except grpc.RpcError as broken:
                error = from_rpc_error(broken, of_stream=True)
            await route.next_try(error)

    async def _call(
        self, method: str, request: Any, response: type[Response], instance_id: str = ""
    ) -> Response:
        return await self._servers.call(f"InstanceService/{method}", request, response, instance_id)


def _duration(time: float | timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(time if isinstance(time, timedelta) else timedelta(seconds=time))
    return duration
