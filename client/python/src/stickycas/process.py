"""A process of an instance, as a strategy plays it; and the strategy of a correct one (the paper's Algorithm 1, SPEC D1)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from stickycas._servers import Route, Servers
from stickycas.errors import (
    Lost,
    NoDecision,
    Refused,
    Replaced,
    StickyCasError,
    Unreachable,
    from_rpc_error,
)
from stickycas.v1 import access_pb2, errors_pb2, instance_pb2, instance_service_pb2, sticky_cas_service_pb2

_CODES = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True)
class Appended:
    """The answer to an append. All outcomes are answers, none is an error."""

    phase: int
    """In which it was executed, from 1."""
    outcome: str
    """SUCCESS, FAILED (another append of the phase won) or LIMIT_REACHED."""
    position: int | None
    """Where the value stands, from 0, if it was a success."""


@dataclass(frozen=True)
class ReadEntries:
    """The answer to a read: a piece of the list as it stood when the phase began."""

    phase: int
    """In which it was executed; 0: outside phases, since the instance has ended."""
    start: int
    values: list[bytes]
    length: int
    """Of the whole list."""
    sealed: bool
    """Whether no entry will ever be added any more."""


class Process(ABC):
    """The process that the caller is at an instance. Its accesses have their numbers from here, and are repeated here.

    One access at a time: each waits for its phase. Raises `Refused` for what no retry helps, `Unreachable` when nobody has
    answered for `give_up_after` seconds, `Replaced`, `Lost`.
    """

    def __init__(self, servers: Servers, found: instance_service_pb2.GetResponse) -> None:
        self.servers, self.instance_id = servers, found.instance.instance_id
        self.parameters: instance_pb2.Parameters = found.instance.parameters
        """All parameters of the instance."""
        self.own: access_pb2.Own = found.own
        """What the server knew of this process when it began: `next_access_number` above 1 if it has acted before."""
        self.number = found.own.process
        """The number of the process, from 1."""
        self._next = found.own.next_access_number
        self._unanswered: sticky_cas_service_pb2.Access | None = None

    async def append(self, value: bytes) -> Appended:
        """Appends a value in the next phase of this process."""
        answer = await self._access(append=access_pb2.Append(value=value))
        outcome = access_pb2.AppendOutcome.Name(answer.append.outcome).removeprefix("APPEND_OUTCOME_")
        position = answer.append.position if answer.append.HasField("position") else None
        return Appended(answer.phase, outcome, position)

    async def read(self, start: int = 0) -> ReadEntries:
        """Reads up to `read_size` entries from this position on, in the next phase of this process."""
        answer = await self._access(read=access_pb2.Read(start=start))
        read = answer.read
        return ReadEntries(answer.phase, read.start, list(read.values), read.length, read.sealed)

    async def decide(self, value: bytes) -> None:
        """Reports a decision. The process thereby leaves: nobody waits for it any more."""
        request = sticky_cas_service_pb2.DecideRequest(instance_id=self.instance_id, value=value)
        response = sticky_cas_service_pb2.DecideResponse
        await self.servers.call("StickyCasService/Decide", request, response, self.instance_id)

    async def finish_earlier_accesses(self) -> None:
        """Waits for what an earlier life of this process has sent and nobody has told it the answer of."""
        for waiting in self.own.waiting:
            await self._answer(_access(waiting.number, waiting))

    async def _access(self, **op: Any) -> sticky_cas_service_pb2.Answer:
        if self._unanswered is not None:
            # Whoever waited for it was cancelled; the access was not, and its number is taken.
            await self._finish(self._unanswered)
        self._unanswered = sticky_cas_service_pb2.Access(number=self._next, **op)
        return await self._finish(self._unanswered)

    async def _finish(self, access: sticky_cas_service_pb2.Access) -> sticky_cas_service_pb2.Answer:
        answer = await self._answer(access)
        self._unanswered, self._next = None, access.number + 1
        return answer

    @abstractmethod
    async def _answer(self, access: sticky_cas_service_pb2.Access) -> sticky_cas_service_pb2.Answer:
        """The answer to an access, which is sent as often as need be."""


def _access(number: int, op: access_pb2.WaitingAccess) -> sticky_cas_service_pb2.Access:
    if op.HasField("append"):
        return sticky_cas_service_pb2.Access(number=number, append=op.append)
    return sticky_cas_service_pb2.Access(number=number, read=op.read)


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
                        return frame.answer
            except _FrameRefused as refused:
                # The stream goes on, unless it is the session that has ended.
                if refused.number != access.number or refused.reason in _END_SESSIONS:
                    self.leave()
                await self.route.next_try(refused)
            except StickyCasError as error:
                self.leave()
                await self.route.next_try(error)
            except BaseException:
                # What comes later on this stream nobody would expect.
                self.leave()
                raise
            if self.route.server != server:
                self.leave()

    async def _open(self) -> None:
        connect: Any = self.servers.channel(self.route.server).stream_stream(
            "/stickycas.v1.StickyCasService/Attach",
            request_serializer=sticky_cas_service_pb2.AttachRequest.SerializeToString,
            response_deserializer=sticky_cas_service_pb2.AttachResponse.FromString,
        )
        self.stream = connect(metadata=self.servers.metadata())
        self.frames = self._received()
        hello = sticky_cas_service_pb2.Hello(instance_id=self.instance_id, incarnation=self.incarnation)
        await self._send(hello=hello)
        while not (await self._receive()).HasField("welcome"):
            pass
        self.route.note_answer()

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

    def leave(self) -> None:
        """Ends the stream."""
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


# The session is over, and with it the channel.
_END_SESSIONS = {"NOT_OWNER", "OWNER_LOST", "SESSION_REPLACED"}


Strategy = Callable[[Process], Awaitable[bytes]]
"""What a process does, and what it decides."""


def correct(proposal: bytes) -> Strategy:
    """A correct process (SPEC D1) that proposes this value: the paper's Algorithm 1 under the window `first_access`."""

    async def play(process: Process) -> bytes:
        if process.parameters.append_window == instance_pb2.APPEND_WINDOW_OPEN:
            raise NoDecision("the append window of this instance is open: this strategy is for first_access")
        if process.own.HasField("decided"):
            return process.own.decided
        if process.own.next_access_number > 1:
            await process.finish_earlier_accesses()
        else:
            # Whatever the answer.
            await process.append(proposal)
        warps = -(-process.parameters.processes // process.parameters.warp_size)
        held: list[bytes] = []
        while True:
            read = await process.read(len(held))
            held += read.values
            if read.length < len(held):
                raise Lost(f"{len(held)} entries were read, and now the list has {read.length}")
            if len(held) >= warps or (read.sealed and len(held) == read.length):
                break
        decision = mode(held)
        if decision is None:
            raise NoDecision("the list is sealed without any entry")
        await process.decide(decision)
        return decision

    return play


def mode(values: list[bytes]) -> bytes | None:
    """The most frequent value; of several such, the smallest by unsigned bytes. `None` of none."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value), default=None)


@contextlib.contextmanager
def entered(process: Process) -> Any:
    """Ends the stream of the process at the end."""
    try:
        yield process
    finally:
        if isinstance(process, AttachedProcess):
            process.leave()
