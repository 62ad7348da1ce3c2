"""A server of one instance that does what a test says, in the process of the test."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import unittest
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

import stickycas
from stickycas import _servers
from stickycas.v1 import (
    access_pb2,
    errors_pb2,
    history_pb2,
    instance_pb2,
    instance_service_pb2,
    server_service_pb2,
    sticky_cas_service_pb2,
)

INSTANCE = "0" * 31 + "1"
# That something is asked again is what most tests are about.
logging.getLogger("stickycas").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Refusal:
    """What a server says no with: in a status, or in-band on Attach."""

    reason: str | int
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    owner: str = ""
    epoch: int = 0
    retry_after: float = 0.0

    def details(self) -> bytes:
        """The details of the status."""
        metadata = {"owner": self.owner, "epoch": str(self.epoch)} if self.owner else {}
        reason = f"OF_A_LATER_VERSION_{self.reason}" if isinstance(self.reason, int) else self.reason
        info, retry = any_pb2.Any(), any_pb2.Any()
        info.Pack(error_details_pb2.ErrorInfo(domain="stickycas.v1", reason=reason, metadata=metadata))
        retry.Pack(error_details_pb2.RetryInfo(retry_delay=self.delay()))
        details = [info, retry] if self.retry_after else [info]
        status: bytes = status_pb2.Status(code=self.code.value[0], details=details).SerializeToString()
        return status

    def frame(self, number: int) -> sticky_cas_service_pb2.ServerFrame:
        """The same on Attach."""
        values = dict(errors_pb2.RefusalReason.items())
        reason: Any = self.reason if isinstance(self.reason, int) else values["REFUSAL_REASON_" + self.reason]
        refusal = sticky_cas_service_pb2.Refusal(
            access_number=number,
            code=self.code.value[0],
            reason=reason,
            retry_after=self.delay(),
            owner=self.owner,
            epoch=self.epoch,
        )
        return sticky_cas_service_pb2.ServerFrame(refusal=refusal)

    def delay(self) -> Duration:
        """The time to wait."""
        return Duration(nanos=int(self.retry_after * 1e9))


@dataclass(frozen=True)
class Break:
    """A call or stream ends without a reason of StickyCAS. OK: a stream just ends."""

    code: grpc.StatusCode


@dataclass(frozen=True)
class Replaced:
    """Another session has been opened, by this client or by another one."""

    by_itself: bool


class Hang:
    """No answer ever comes."""


Action = Refusal | Break | Replaced | Hang


class Scripted:
    """A server on a free port. What it was asked stands in `asked`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.actions: list[Action | None] = []
        """What it does at the next calls and frames: None: it answers."""
        self.always: Action | None = None
        """What it does after these."""
        self.values = [b"x"]
        """The list."""
        self.sealed = False
        self.read_phase = 2
        """In which it executes reads."""
        self.position: int | None = 0
        """Where it tells that an append stands."""
        self.failed: list[int] = []
        """The phases of appends that fail before."""
        self.parameters = instance_pb2.Parameters(processes=1, warp_size=1, read_size=1)
        self.state = instance_pb2.STATE_FINISHED
        """Of the instance."""
        self.own = access_pb2.Own(process=1, next_access_number=1)
        self.is_member = True
        self.named: list[str] = []
        """The servers of its cluster."""
        self.answers_probes = True
        self.pages: list[instance_service_pb2.ListResponse] = []
        self.histories: list[list[history_pb2.Event]] = []
        """What each Watch shows, before the next action."""
        self.next_event: int | None = None
        self.created: list[instance_service_pb2.CreateRequest] = []
        self.listed: list[instance_service_pb2.ListRequest] = []
        self.left = asyncio.Event()
        """Set when a client has left a call that hangs."""
        options = [
            ("grpc.http2.min_ping_interval_without_data_ms", 10),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.so_reuseport", 0),
        ]
        self.server = grpc.aio.server(options=options)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    async def start(self) -> None:
        """Starts it."""
        unary: dict[str, Callable[[Any], Any]] = {
            "StickyCasService/Append": self.append,
            "StickyCasService/Read": self.read,
            "StickyCasService/Decide": self.decide,
            "InstanceService/Create": self.create,
            "InstanceService/Get": self.get,
            "InstanceService/List": self.list,
        }
        for method, answer in unary.items():
            self._add(grpc.unary_unary_rpc_method_handler, method, self._unary(answer))
        self._add(grpc.unary_unary_rpc_method_handler, "ServerService/GetCluster", self.get_cluster)
        self._add(grpc.unary_stream_rpc_method_handler, "InstanceService/Watch", self.watch)
        self._add(grpc.stream_stream_rpc_method_handler, "StickyCasService/Attach", self.attach)
        await self.server.start()

    def _add(self, kind: Callable[..., Any], method: str, behaviour: Any) -> None:
        service, name = method.split("/")
        module: Any = {
            "StickyCasService": sticky_cas_service_pb2,
            "InstanceService": instance_service_pb2,
            "ServerService": server_service_pb2,
        }[service]
        request, response = getattr(module, f"{name}Request"), getattr(module, f"{name}Response")
        handler = kind(behaviour, request.FromString, response.SerializeToString)
        generic = grpc.method_handlers_generic_handler(f"stickycas.v1.{service}", {name: handler})
        self.server.add_generic_rpc_handlers((generic,))

    def next_action(self) -> Action | None:
        """What to do now."""
        return self.actions.pop(0) if self.actions else self.always

    async def end(self, action: Action, context: Any) -> None:
        """Ends a call or stream in this way."""
        if isinstance(action, Refusal):
            context.set_trailing_metadata((("grpc-status-details-bin", action.details()),))
            await context.abort(action.code, "refused")
        if isinstance(action, Break) and action.code != grpc.StatusCode.OK:
            await context.abort(action.code, "broken")
        if isinstance(action, Hang):
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()

    def _unary(self, answer: Callable[[Any], Any]) -> Callable[[Any, Any], Awaitable[Any]]:
        async def method(request: Any, context: Any) -> Any:
            response = answer(request)
            if action := self.next_action():
                await self.end(action, context)
            return response

        return method

    def append(self, request: Any) -> Any:
        self.asked.append(f"append {request.access_number} {request.value.decode()}")
        phase, result = self.append_result()
        return sticky_cas_service_pb2.AppendResponse(phase=phase, result=result)

    def append_result(self) -> tuple[int, access_pb2.AppendResult]:
        """An append has lost, has won, or has come too late; and its phase."""
        if self.failed:
            return self.failed.pop(0), access_pb2.AppendResult(outcome=access_pb2.APPEND_OUTCOME_FAILED)
        outcome = access_pb2.APPEND_OUTCOME_SUCCESS
        if self.position is None:
            outcome = access_pb2.APPEND_OUTCOME_LIMIT_REACHED
        return 1, access_pb2.AppendResult(outcome=outcome, position=self.position)

    def read(self, request: Any) -> Any:
        self.asked.append(f"read {request.access_number} {request.start}")
        result = self.read_result(request.start)
        return sticky_cas_service_pb2.ReadResponse(phase=self.read_phase, result=result)

    def read_result(self, start: int) -> access_pb2.ReadResult:
        """A piece of the list."""
        values = self.values[start : start + self.parameters.read_size]
        length = len(self.values)
        return access_pb2.ReadResult(start=start, values=values, length=length, sealed=self.sealed)

    def decide(self, request: Any) -> Any:
        self.asked.append(f"decide {request.value.decode()}")
        return sticky_cas_service_pb2.DecideResponse()

    def create(self, request: Any) -> Any:
        self.created.append(request)
        return instance_service_pb2.CreateResponse(instance=self.instance(), created=True)

    def get(self, request: Any) -> Any:
        self.asked.append(f"get {request.name or 'it'}")
        own = self.own if self.is_member else None
        status = instance_pb2.Status(state=self.state)
        return instance_service_pb2.GetResponse(instance=self.instance(), status=status, own=own)

    def instance(self) -> instance_pb2.Instance:
        """The instance."""
        return instance_pb2.Instance(instance_id=INSTANCE, parameters=self.parameters)

    def list(self, request: Any) -> Any:
        self.asked.append(f"list {request.page_token or '0'}")
        self.listed.append(request)
        return self.pages[int(request.page_token or 0)]

    async def get_cluster(self, _: Any, context: Any) -> Any:
        """A probe, too: it is in no script."""
        if not self.answers_probes:
            await self.end(Hang(), context)
        servers = [server_service_pb2.ClusterServer(address=address) for address in self.named]
        return server_service_pb2.GetClusterResponse(shards=1, servers=servers)

    async def watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.asked.append(f"watch {request.from_phase}")
        if self.next_event is not None:
            await context.send_initial_metadata((("stickycas-next-event", str(self.next_event)),))
        if events := self.histories.pop(0) if self.histories else []:
            batch = instance_service_pb2.EventBatch(events=events)
            yield instance_service_pb2.WatchResponse(events=batch)
        if action := self.next_action():
            await self.end(action, context)

    async def attach(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            for frame in request.frames:
                answer = self.frame(frame)
                if isinstance(answer, sticky_cas_service_pb2.ServerFrame):
                    yield sticky_cas_service_pb2.AttachResponse(frames=[answer])
                else:
                    await self.end(answer, context)
                    return

    def frame(self, frame: Any) -> sticky_cas_service_pb2.ServerFrame | Action:
        """What comes of a frame: another one, or the end of the stream."""
        messages, access = sticky_cas_service_pb2, frame.access
        if frame.HasField("hello"):
            self.asked.append("hello")
            self.incarnation = frame.hello.incarnation
            answer = messages.ServerFrame(welcome=messages.Welcome(own=self.own))
        elif access.HasField("append"):
            self.asked.append(f"append {access.number} {access.append.value.decode()}")
            phase, outcome = self.append_result()
            appended = messages.Answer(number=access.number, phase=phase, append=outcome)
            answer = messages.ServerFrame(answer=appended)
        else:
            self.asked.append(f"read {access.number} {access.read.start}")
            result = self.read_result(access.read.start)
            read = messages.Answer(number=access.number, phase=self.read_phase, read=result)
            answer = messages.ServerFrame(answer=read)
        action = self.next_action()
        if isinstance(action, Refusal):
            return action.frame(access.number)
        if isinstance(action, Replaced):
            incarnation = self.incarnation if action.by_itself else self.incarnation ^ 1
            return messages.ServerFrame(replaced=messages.Replaced(session=2, incarnation=incarnation))
        return action or answer


def not_owner(owner: Scripted | None = None, epoch: int = 0) -> Refusal:
    """A server that is not the owner names it, or none."""
    return Refusal("NOT_OWNER", owner=owner.address if owner else "", epoch=epoch)


class WithServers(unittest.IsolatedAsyncioTestCase):
    """Tests among three servers. Pauses are recorded and not made."""

    async def asyncSetUp(self) -> None:
        self.servers = [Scripted() for _ in range(3)]
        for server in self.servers:
            await server.start()
            self.addAsyncCleanup(server.server.stop, None)
        self.pauses: list[float] = []

        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            await asyncio.sleep(0)

        replaced = mock.patch.object(_servers, "asyncio", SimpleNamespace(sleep=pause))
        self.enterContext_(replaced)

    def enterContext_(self, context: Any) -> Any:
        """`enterContext` is of Python 3.11."""
        entered = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return entered

    def client(
        self, *addresses: str, give_up_after: float = 5.0
    ) -> contextlib.AbstractAsyncContextManager[Any]:
        """A client of these servers, or of all."""
        given = addresses or [server.address for server in self.servers]
        return stickycas.Client(list(given), principal="ann", give_up_after=give_up_after)


class Pausable:
    """A way to a server that can be paused: then it takes connections and bytes, and answers nothing."""

    def __init__(self, server: Scripted) -> None:
        self.target = server.address.rpartition(":")
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"

    async def start(self) -> None:
        """Starts it."""
        self.listener = await asyncio.start_server(self._accept, sock=self.socket)

    async def stop(self) -> None:
        """Ends it."""
        self.goes_on.set()
        self.listener.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target
        server = await asyncio.open_connection(host, int(port))
        await asyncio.gather(self._copy(reader, server[1]), self._copy(server[0], writer))

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(65536):
                await self.goes_on.wait()
                sink.write(piece)
        sink.close()
