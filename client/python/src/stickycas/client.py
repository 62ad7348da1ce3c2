"""The client: what a coordinator, a process or an observer asks of servers."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from stickycas import _watch
from stickycas._accesses import AttachedProcess, UnaryProcess
from stickycas._list import Listed, list_all
from stickycas._servers import Servers
from stickycas.errors import Refused, StickyCasError
from stickycas.process import Process, Strategy, correct
from stickycas.v1 import history_pb2, instance_pb2, instance_service_pb2

_ID = re.compile("[0-9a-f]{32}")


class Client:
    """One principal at a server, or at several servers of a cluster.

    `http://` is for servers that believe the name of a `principal` (for development); `https://` goes with `credentials`,
    the folder with `ca.crt` and either `tls.crt` and `tls.key` or `token`. They name the principal: another name beside
    them is refused. Nobody answers for `give_up_after` seconds: then a call raises `Unreachable`. Waiting for a phase has
    no limit. Use it as `async with Client(...) as client`.
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
        append_rounds: int = 1,
        patience: float | timedelta | None = None,
        join_timeout: float | timedelta | None = None,
        pace: float | timedelta | None = None,
        **parameters: Any,
    ) -> instance_pb2.Instance:
        """Creates an instance; with a name it may be repeated, and finds the one that is there.

        `roster`: the principals of processes 1, 2, ...; `read_size`: by default one for each process; `append_rounds`:
        the first phases of a warp in which it may append. Times are in seconds;
        a patience of `math.inf` has no end. `parameters`: further ones of `Parameters` in instance.proto.
        """
        if isinstance(roster, str) or not roster:
            raise ValueError("roster: give a list with the principal of each process, as in ['ann', 'bob']")
        read_size = len(roster) if read_size is None else read_size
        for key, size in {"warp_size": warp_size, "read_size": read_size}.items():
            if not 1 <= size <= len(roster):
                raise ValueError(f"{key} is {size}: give 1 to {len(roster)}, the number of processes")
        if not 1 <= append_rounds <= warp_size:
            raise ValueError(f"append_rounds is {append_rounds}: give 1 to {warp_size}, the warp size")
        if append_rounds > 1:
            parameters["append_rounds"] = append_rounds
        if patience == math.inf:
            parameters["endless_patience"], patience = instance_pb2.EndlessPatience(), None
        times = {"patience": patience, "join_timeout": join_timeout, "pace": pace}
        given: dict[str, Any] = {key: _duration(key, time) for key, time in times.items() if time is not None}
        wanted = instance_pb2.Parameters(
            processes=len(roster), warp_size=warp_size, read_size=read_size, **given, **parameters
        )
        request = instance_service_pb2.CreateRequest(name=name, roster=roster, parameters=wanted)
        created = await self._servers.call(
            "InstanceService/Create",
            request,
            instance_service_pb2.CreateResponse,
            # Without a name another call makes another instance.
            may_repeat=name != "",
        )
        if max(created.instance.parameters.append_rounds, 1) != append_rounds:
            raise StickyCasError("the server is so old that it knows no append_rounds")
        return created.instance

    async def get(self, instance: str) -> instance_service_pb2.GetResponse:
        """An instance by id or name: what was fixed when it was created, its status, and the state of the caller's process."""
        is_id = _ID.fullmatch(instance) is not None
        named: dict[str, Any] = {"instance_id" if is_id else "name": instance}
        request = instance_service_pb2.GetRequest(**named)
        response = instance_service_pb2.GetResponse
        return await self._servers.call("InstanceService/Get", request, response, instance if is_id else "")

    async def list(self, *, states: Iterable[instance_pb2.State] = (), text: str = "") -> Listed:
        """The instances that the caller may see, of all servers: in these states, with this text in their name."""
        request = instance_service_pb2.ListRequest(states=list(states), text=text)
        return await list_all(self._servers, request)

    async def close_instance(self, instance_id: str) -> None:
        """Closes an instance that the caller has created: no process acts there any more."""
        request = instance_service_pb2.CloseRequest(instance_id=instance_id)
        response = instance_service_pb2.CloseResponse
        await self._servers.call("InstanceService/Close", request, response, instance_id)

    async def propose(self, instance: str, value: bytes, *, unary: bool = False) -> bytes:
        """Plays the caller's process at an instance, as a correct one that proposes this value; returns its decision.

        If an earlier life of it has acted before, it goes on where that ended.
        """
        return await self.play(instance, correct(value), unary=unary)

    async def play(self, instance: str, strategy: Strategy, *, unary: bool = False) -> bytes:
        """Plays the caller's process by a strategy of one's own; returns what that returns.

        Over the stream Attach, or with `unary` by a call for each access. If an earlier life of the process has decided, it
        returns that; if it has left accesses without an answer, they are finished before the strategy begins.
        """
        found = await self.get(instance)
        if not found.HasField("own"):
            raise Refused(
                "NOT_A_MEMBER", grpc.StatusCode.PERMISSION_DENIED, f"the caller is no process of {instance}"
            )
        if found.own.HasField("decided"):
            return found.own.decided
        process: Process = (UnaryProcess if unary else AttachedProcess)(self._servers, found)
        try:
            await process.finish_earlier_accesses()
            return await strategy(process)
        finally:
            process.leave()

    async def watch(self, instance: str) -> AsyncGenerator[history_pb2.Event, None]:
        """The events of an instance from the first that is kept to its end, each once, over broken streams.

        Raises `Lost` when events are missing. A process never decides by this (SPEC F13).
        """
        found = await self.get(instance)
        async with contextlib.aclosing(_watch.events(self._servers, found.instance.instance_id)) as events:
            async for event in events:
                yield event


def _duration(name: str, time: float | timedelta) -> Duration:
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{name} is {seconds}: give seconds, 0 or more")
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return duration
