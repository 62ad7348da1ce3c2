"""A process of an instance, as a strategy plays it; and the strategy of a correct one (the paper's Algorithm 1, SPEC D1)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from stickycas._known import Known
from stickycas._servers import Servers
from stickycas.errors import NoDecision, Refused
from stickycas.v1 import access_pb2, instance_pb2, instance_service_pb2, sticky_cas_service_pb2


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
        warp_size = self.parameters.warp_size
        self._rounds = max(self.parameters.append_rounds, 1)
        self._warps = -(-self.parameters.processes // warp_size)
        in_last = self.parameters.processes - (self._warps - 1) * warp_size
        self._most = (self._warps - 1) * self._rounds + min(self._rounds, in_last)
        self._known = Known(self._rounds)
        self._known.told(found.own)
        self._one_at_a_time = asyncio.Lock()
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

    @property
    def is_to_append(self) -> bool:
        """Whether the next access of a correct process appends: until it wins, or its warp had its append rounds (K2)."""
        last = self._known.append
        if last is None:
            return self.own.next_access_number == 1
        failed = last.result.outcome == access_pb2.APPEND_OUTCOME_FAILED
        return failed and last.phase <= self._warps * (self._rounds - 1)

    async def read_all(self) -> list[bytes]:
        """Reads until no entry can be missing any more: a correct process decides from these."""
        held: list[bytes] = []
        while True:
            read = await self.read(len(held))
            held += read.values
            if len(held) >= self._most or (read.sealed and len(held) == read.length):
                return held

    async def decide(self, value: bytes) -> None:
        """Reports a decision. The process thereby leaves: nobody waits for it any more."""
        request = sticky_cas_service_pb2.DecideRequest(instance_id=self.instance_id, value=value)
        response = sticky_cas_service_pb2.DecideResponse
        await self.servers.call("StickyCasService/Decide", request, response, self.instance_id)

    async def finish_earlier_accesses(self) -> None:
        """Waits for what an earlier life of this process has sent, and whose answer nobody has taken."""
        for waiting in self.own.waiting:
            kind = str(waiting.WhichOneof("op"))
            op: dict[str, Any] = {kind: getattr(waiting, kind)}
            access = sticky_cas_service_pb2.Access(number=waiting.number, **op)
            self._known.answered(access, await self._answer(access))

    async def _access(self, **op: Any) -> sticky_cas_service_pb2.Answer:
        async with self._one_at_a_time:
            if self._unanswered is not None:
                # Whoever waited for it was cancelled; the access was not, and its number is taken.
                await self._finish(self._unanswered)
            self._unanswered = sticky_cas_service_pb2.Access(number=self._next, **op)
            return await self._finish(self._unanswered)

    async def _finish(self, access: sticky_cas_service_pb2.Access) -> sticky_cas_service_pb2.Answer:
        try:
            answer = await self._answer(access)
        except Refused as refused:
            if not refused.may_retry and not refused.may_have_happened:
                # The server has not taken the number: the next access has it.
                self._unanswered = None
            raise
        self._unanswered, self._next = None, access.number + 1
        self._known.answered(access, answer)
        return answer

    def leave(self) -> None:
        """Ends what is open to the server."""

    @abstractmethod
    async def _answer(self, access: sticky_cas_service_pb2.Access) -> sticky_cas_service_pb2.Answer:
        """The answer to an access, which is sent as often as need be."""


Strategy = Callable[[Process], Awaitable[bytes]]
"""What a process does, and what it decides."""


def correct(proposal: bytes) -> Strategy:
    """A correct process (SPEC D1) that proposes this value: the paper's Algorithm 1 under the window `first_access`."""

    async def play(process: Process) -> bytes:
        if process.parameters.append_window == instance_pb2.APPEND_WINDOW_OPEN:
            raise NoDecision("the append window of this instance is open: this strategy is for first_access")
        while process.is_to_append:
            await process.append(proposal)
        decision = mode(await process.read_all())
        if decision is None:
            raise NoDecision("the list is sealed without any entry")
        await process.decide(decision)
        return decision

    return play


def mode(values: list[bytes]) -> bytes | None:
    """The most frequent value; of several such, the smallest by unsigned bytes. `None` of none."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value), default=None)
