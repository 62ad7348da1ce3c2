"""The servers as one principal sees them: owners, servers that are down, and the repetition of calls (docs/use/clients.md)."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from stickycas._channels import Credentials, Metadata, addresses_of, open_channel
from stickycas.errors import Refused, StickyCasError, Unreachable, from_rpc_error
from stickycas.v1 import server_service_pb2

log = logging.getLogger("stickycas")

Response = TypeVar("Response")

CALL_TIMEOUT = 10.0
"""How long one call may wait for its phase before it is made again, in seconds."""
ANSWER_TIMEOUT = 2.0
"""How long a server may take to name the servers of its cluster, in seconds."""
PROBE_TIMEOUT = 1.0
"""How long a server that did not answer may take to show that it does again, in seconds."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5
"""Between two tries, in seconds."""
MAX_REDIRECTS = 4
"""Redirects that are followed without a pause."""
MOST_OWNERS = MOST_SERVERS = 1000
"""For how many instances owners are remembered, and how many servers may be known."""
# Reasons with which a server answers and will serve, however long that takes.
WILL_SERVE = {"DEADLINE", "RECOVERING"}


class Servers:
    """The servers that were given, and what they have told of owners."""

    def __init__(
        self, urls: Sequence[str], credentials: Path | None, principal: str | None, give_up_after: float
    ) -> None:
        self.given = addresses_of(urls, credentials is not None)
        if credentials is None and not principal:
            raise ValueError("give credentials, or the principal that the server is to believe")
        if not give_up_after >= 0:
            raise ValueError(f"give_up_after is {give_up_after}: give seconds, 0 or more")
        self.credentials = Credentials(credentials) if credentials else None
        self.addresses = list(self.given)
        self.principal, self.give_up_after = principal, give_up_after
        self.channels: dict[str, grpc.aio.Channel] = {}
        # The epoch and address of each known owner.
        self.owners: dict[str, tuple[int, str]] = {}
        # The servers that could not be reached, and have not answered since.
        self.down: set[str] = set()
        self.turn = 0

    def metadata(self) -> Metadata:
        """What each call shows of who makes it."""
        shown = self.credentials.metadata() if self.credentials else ()
        return shown if self.principal is None else (*shown, ("stickycas-principal", self.principal))

    def channel(self, address: str) -> grpc.aio.Channel:
        """The channel to a server. There is one, whatever number of instances it owns."""
        if address not in self.channels:
            self.channels[address] = open_channel(address, self.credentials)
        return self.channels[address]

    async def close(self) -> None:
        """Closes all channels."""
        for channel in self.channels.values():
            await channel.close()

    async def call_at(
        self, address: str, method: str, request: Any, response: type[Response], timeout: float
    ) -> Response:
        """One call at one server; `method` is `Service/Method`."""
        stub: Any = self.channel(address).unary_unary(
            f"/stickycas.v1.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,  # type: ignore[attr-defined]
        )
        try:
            answer: Response = await stub(request, metadata=self.metadata(), timeout=timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        return answer

    async def call(
        self,
        method: str,
        request: Any,
        response: type[Response],
        instance_id: str = "",
        *,
        may_repeat: bool = True,
    ) -> Response:
        """The answer to a call; the very same call is made until it is answered or refused for good."""
        route = Route(self, instance_id)
        while True:
            try:
                await self.probe(route.server)
                answer = await self.call_at(route.server, method, request, response, CALL_TIMEOUT)
                route.note_answer()
                return answer
            except StickyCasError as error:
                if error.may_have_happened and not may_repeat:
                    raise
                await route.next_try(error)

    async def probe(self, address: str) -> None:
        """Makes sure, if this server could not be reached and there are others, that it answers now, in a short time."""
        if address not in self.down or len(self.addresses) == 1:
            return
        if not await self.answers(address):
            raise Unreachable(f"{address} does not answer")
        self.down.discard(address)

    async def answers(self, address: str) -> bool:
        """Whether a server answers a call for which it has to wait for nobody."""
        try:
            await self._ask_for_cluster(address, PROBE_TIMEOUT)
        except Unreachable:
            return False
        except StickyCasError:
            # Any refusal is an answer.
            pass
        return True

    async def may_ask(self, address: str) -> bool:
        """Whether a server was given, or one that was given names it: a wrong one sends this client nowhere else."""
        for server in sorted(self.given, key=self.down.__contains__):
            if address in self.addresses:
                break
            try:
                told = await self._ask_for_cluster(server, ANSWER_TIMEOUT)
            except StickyCasError:
                continue
            new = {it.address for it in told.servers if it.address} - set(self.addresses)
            self.addresses += sorted(new)[: MOST_SERVERS - len(self.addresses)]
        return address in self.addresses

    async def _ask_for_cluster(self, address: str, timeout: float) -> server_service_pb2.GetClusterResponse:
        request, response = server_service_pb2.GetClusterRequest(), server_service_pb2.GetClusterResponse
        return await self.call_at(address, "ServerService/GetCluster", request, response, timeout)

    def next_server(self, instance_id: str, tried: set[str]) -> str:
        """The owner, if it is known and in reach; else the next server, one that was not tried and is not down first."""
        _, owner = self.owners.get(instance_id, (0, ""))
        if owner and owner not in self.down:
            return owner
        turn = self.turn % len(self.addresses)
        in_order = self.addresses[turn:] + self.addresses[:turn]
        return min(in_order, key=lambda address: (address in tried, address in self.down))

    def avoid(self, instance_id: str, address: str) -> None:
        """A server is not the owner, or does not answer: the next one is asked. The epoch stays known."""
        epoch, owner = self.owners.get(instance_id, (0, ""))
        if owner == address:
            self.owners[instance_id] = (epoch, "")
        if self.addresses[self.turn % len(self.addresses)] == address:
            self.turn += 1

    async def learn(self, instance_id: str, owner: str, epoch: int) -> bool:
        """A server has named an owner: whether to ask that one at once.

        Not if the epoch is older than the one known. Nor if that owner could not be reached, unless its epoch is newer
        than one that was known: until its lease has ended the others name it still. Without an id nothing is kept:
        epochs of different shards say nothing of each other.
        """
        known, _ = self.owners.get(instance_id, (0, ""))
        if epoch < known or not await self.may_ask(owner):
            return False
        follows = owner not in self.down or 0 < known < epoch
        if instance_id:
            if len(self.owners) >= MOST_OWNERS:
                self.owners.clear()
            self.owners[instance_id] = (epoch, owner if follows else "")
        return follows


class Route:
    """The way of one call, or of one stream, to the server that answers it."""

    def __init__(self, servers: Servers, instance_id: str = "") -> None:
        self.servers, self.instance_id = servers, instance_id
        # The servers that have refused since one could not be reached.
        self.tried: set[str] = set()
        self.server = servers.next_server(instance_id, self.tried)
        self.failing_since: float | None = None
        self.redirects, self.pause = 0, FIRST_PAUSE
        # Of the stream that goes this way, if there is one.
        self.open_since: float | None = None

    def note_open(self) -> None:
        """A stream is open. By itself that is no progress: it may break again at once, each time."""
        self.open_since = time.monotonic()

    def note_end(self) -> None:
        """The stream has ended. If it has lasted, the server was there."""
        if self.open_since is not None and time.monotonic() - self.open_since > LONGEST_PAUSE:
            self.note_answer()
        self.open_since = None

    def note_answer(self) -> None:
        """The server has answered."""
        self.failing_since, self.redirects, self.pause = None, 0, FIRST_PAUSE
        self.tried.clear()
        self.servers.down.discard(self.server)

    async def next_try(self, error: StickyCasError) -> None:
        """Chooses the server to ask next, and waits if that is due. Raises the error if nothing is to be asked again."""
        if not error.may_retry:
            raise error
        happened = "it may have happened" if error.may_have_happened else "it did not happen"
        log.warning("asks again: %s: %s", happened, error)
        refused = error if isinstance(error, Refused) else None
        is_down = isinstance(error, Unreachable)
        if isinstance(error, Unreachable) and error.timed_out:
            # So does a call end that waits for its phase.
            is_down = not await self.servers.answers(self.server)
        serves_not = refused is not None and refused.code == grpc.StatusCode.UNAVAILABLE
        if is_down:
            self.servers.down.add(self.server)
            self.tried.clear()
        elif serves_not:
            self.tried.add(self.server)
        leaves = is_down or serves_not
        if leaves:
            self.servers.avoid(self.instance_id, self.server)
        if await self._follow_owner(refused):
            return
        if not is_down and (refused is None or refused.reason in WILL_SERVE):
            self.failing_since = None
        else:
            self.failing_since = self.failing_since or time.monotonic()
            if time.monotonic() - self.failing_since >= self.servers.give_up_after:
                raise error if refused else Unreachable(f"gave up: {error}")
        advised = refused.retry_after if refused else 0.0
        await asyncio.sleep(max(advised, self.pause * random.uniform(0.5, 1.0)))
        self.pause = min(2 * self.pause, LONGEST_PAUSE)
        self.redirects = 0
        if leaves:
            self.server = self.servers.next_server(self.instance_id, self.tried)

    async def _follow_owner(self, refused: Refused | None) -> bool:
        """Whether the refusal has named an owner that is asked at once."""
        owner = refused.owner if refused else None
        if owner is None or owner[0] == self.server or self.redirects == MAX_REDIRECTS:
            return False
        if not await self.servers.learn(self.instance_id, *owner):
            return False
        self.server = owner[0]
        self.redirects += 1
        return True
