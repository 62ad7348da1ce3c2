"""How the accesses of a process reach the server: by unary calls, or on the stream Attach."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from stickycas._servers import Route, Servers
from stickycas.errors import Refused, Replaced, StickyCasError, Unreachable, from_rpc_error
from stickycas.process import Process
from stickycas.v1 import errors_pb2, instance_service_pb2, sticky_cas_service_pb2

_CODES = {code.value[0]: code for code in grpc.StatusCode}
# The session is over, and with it the channel.
_END_SESSIONS = {"NOT_OWNER", "OWNER_LOST", "SESSION_REPLACED"}


class UnaryProcess(Process):
    """By unary calls, one for each access."""

    async def _answer(self, access: sticky_cas_service_pb2.Access) -> sticky_cas_service_pb2.Answer:
        messages, instance, number = sticky_cas_service_pb2, self.instance_id, access.number
        if access.HasField("append"):
            append = messages.AppendRequest(
                instance_id=instance, access_number=number, value=access.append.value
            )
            appended = await self._call("Append", append, messages.AppendResponse)
            return messages.Answer(number=number, phase=appended.phase, append=appended.result)
        read = messages.ReadRequest(instance_id=instance, access_number=number, start=access.read.start)
        done = await self._call("Read", read, messages.ReadResponse)
        return messages.Answer(number=number, phase=done.phase, read=done.result)

    async def _call(self, method: str, request: Any, response: Any) -> Any:
        return await self.servers.call(f"StickyCasService/{method}", request, response, self.instance_id)


class AttachedProcess(Process):
    """On a stream, which is opened again whenever it has ended."""

    def __init__(self, servers: Servers, found: instance_service_pb2.GetResponse) -> None:
        super().__init__(servers, found)
        self.incarnation = secrets.randbits(64)
        self.route = Route(servers, self.instance_id)
        self.stream: grpc.aio.StreamStreamCall[Any, Any] | None = None
        self.frames: AsyncIterator[sticky_cas_service_pb2.ServerFrame] | None = None

    async def _answer(self, access: sticky_cas_service_pb2.Access) -> sticky_cas_service_pb2.Answer:
        while True:
            server = self.route.server
            try:
                if self.stream is None:
                    await self._open()
                await self._send(access=access)
                while True:
                    frame = await self._receive()
                    if frame.HasField("answer") and frame.answer.number == access.number:
                        self.route.note_answer()
                        return frame.answer
            except _FrameRefused as refused:
                # The stream goes on, unless it is the session that has ended.
                if refused.number != access.number or refused.reason in _END_SESSIONS:
                    self._end()
                await self.route.next_try(refused)
            except StickyCasError as error:
                self._end()
                await self.route.next_try(error)
            except BaseException:
                # What comes later on this stream nobody would expect.
                self.leave()
                raise
            if self.route.server != server:
                self.leave()

    async def _open(self) -> None:
        await self.servers.probe(self.route.server)
        connect: Any = self.servers.channel(self.route.server).stream_stream(
            "/stickycas.v1.StickyCasService/Attach",
            request_serializer=sticky_cas_service_pb2.AttachRequest.SerializeToString,
            response_deserializer=sticky_cas_service_pb2.AttachResponse.FromString,
        )
        self.stream = connect(metadata=self.servers.metadata())
        self.frames = self._received()
        hello = sticky_cas_service_pb2.Hello(instance_id=self.instance_id, incarnation=self.incarnation)
        await self._send(hello=hello)
        while not (frame := await self._receive()).HasField("welcome"):
            pass
        self.route.note_open()
        self._known.told(frame.welcome.own)

    async def _send(self, **frame: Any) -> None:
        assert self.stream is not None
        request = sticky_cas_service_pb2.AttachRequest(frames=[sticky_cas_service_pb2.ClientFrame(**frame)])
        try:
            await self.stream.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            # Why, the end of the stream tells.
            pass

    async def _received(self) -> AsyncIterator[sticky_cas_service_pb2.ServerFrame]:
        assert self.stream is not None
        try:
            async for message in self.stream:
                for frame in message.frames:
                    yield frame
        except grpc.RpcError as error:
            raise from_rpc_error(error, of_stream=True) from None
        # Whatever code it has: nothing of ours ends a stream in this way.
        raise Unreachable("the stream has ended")

    async def _receive(self) -> sticky_cas_service_pb2.ServerFrame:
        assert self.frames is not None
        frame = await anext(self.frames)
        if frame.HasField("refusal"):
            raise _FrameRefused(frame.refusal)
        if frame.HasField("replaced"):
            if frame.replaced.incarnation != self.incarnation:
                raise Replaced("another client plays this process")
            raise Unreachable("an earlier hello of this client came late")
        return frame

    def _end(self) -> None:
        self.route.note_end()
        self.leave()

    def leave(self) -> None:
        if self.stream is not None:
            self.stream.cancel()
        self.stream = self.frames = None


class _FrameRefused(Refused):
    """The refusal of one frame; the stream goes on."""

    def __init__(self, refusal: sticky_cas_service_pb2.Refusal) -> None:
        known = refusal.reason in errors_pb2.RefusalReason.values()
        name = errors_pb2.RefusalReason.Name(refusal.reason) if known else f"reason {refusal.reason}"
        metadata = {"owner": refusal.owner, "epoch": str(refusal.epoch)} if refusal.owner else {}
        delay = refusal.retry_after.ToTimedelta().total_seconds()
        code = _CODES.get(refusal.code, grpc.StatusCode.UNKNOWN)
        super().__init__(name.removeprefix("REFUSAL_REASON_"), code, refusal.message, metadata, delay)
        self.number = refusal.access_number
