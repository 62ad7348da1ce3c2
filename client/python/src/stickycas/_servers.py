"""The servers as one principal sees them: channels, identity, owners, and the repetition of calls (docs/clients.md)."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from stickycas.errors import NotStickyCas, Refused, StickyCasError, Unreachable, from_rpc_error
from stickycas.v1 import server_service_pb2

log = logging.getLogger("stickycas")

Response = TypeVar("Response")
Metadata = tuple[tuple[str, str], ...]

CALL_TIMEOUT = 10.0
"""How long one call may wait for its phase before it is made again, in seconds."""
ANSWER_TIMEOUT = 2.0
"""How long a server may take to name the servers of its cluster, in seconds."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5
"""Between two tries, in seconds."""
MAX_REDIRECTS = 4
"""Redirects that are followed without a pause."""
MOST_OWNERS = 1000
"""For how many instances owners are remembered."""
# Reasons with which a server answers and will serve, however long that takes.
WILL_SERVE = {"DEADLINE", "RECOVERING"}

CHANNEL_OPTIONS: dict[str, int] = {
    # While a call is open the server is pinged, so that one that is paused or cut off is noticed.
    "grpc.keepalive_time_ms": 10_000,
    "grpc.keepalive_timeout_ms": 10_000,
    # A call that waits for its phase sends nothing else.
    "grpc.http2.max_pings_without_data": 0,
    # A server that was killed is reached again soon after it is back.
    "grpc.initial_reconnect_backoff_ms": 200,
    "grpc.max_reconnect_backoff_ms": 1_000,
    # An answer to a read on Attach has what the parameters of its instance allow.
    "grpc.max_receive_message_length": 72 * 1024 * 1024,
}


class Credentials:
    """The folder of a client: `ca.crt`, and `tls.crt` with `tls.key`, or `token` (docs/identity.md)."""

    def __init__(self, folder: Path) -> None:
        self.token_file = folder / "token"
        self.has_token = self.token_file.exists()
        key = None if self.has_token else (folder / "tls.key").read_bytes()
        certificate = None if self.has_token else (folder / "tls.crt").read_bytes()
        self.channel = grpc.ssl_channel_credentials((folder / "ca.crt").read_bytes(), key, certificate)

    def metadata(self) -> Metadata:
        """What each call shows. A token is replaced before it expires, so it is read each time."""
        if not self.has_token:
            return ()
        return (("authorization", f"Bearer {self.token_file.read_text().strip()}"),)


class Servers:
    """The servers that were given, and what they have told of owners."""

    def __init__(
        self, urls: Sequence[str], credentials: Path | None, principal: str | None, give_up_after: float
    ) -> None:
        self.credentials = Credentials(credentials) if credentials else None
        for url in urls:
            scheme = url.partition("://")[0] if "://" in url else None
            if scheme not in (None, "https" if credentials else "http"):
                needs = "https, since there are credentials" if credentials else "http, or give credentials"
                raise ValueError(f"{url!r}: the address begins with {needs}")
        if credentials is None and not principal:
            raise ValueError("give credentials, or the principal that the server is to believe")
        self.given = [url.rpartition("://")[2].rstrip("/") for url in urls]
        if not self.given:
            raise ValueError("give the address of a server")
        self.addresses = list(self.given)
        self.principal, self.give_up_after = principal, give_up_after
        self.channels: dict[str, grpc.aio.Channel] = {}
        # The epoch and address of each known owner.
        self.owners: dict[str, tuple[int, str]] = {}
        self.down: set[str] = set()
        self.turn = 0

    def metadata(self) -> Metadata:
        """What each call shows of who makes it."""
        shown = self.credentials.metadata() if self.credentials else ()
        return shown if self.principal is None else (*shown, ("stickycas-principal", self.principal))

    def channel(self, address: str) -> grpc.aio.Channel:
        """The channel to a server. There is one, whatever number of instances it owns."""
        if address not in self.channels:
            options: list[tuple[str, Any]] = list(CHANNEL_OPTIONS.items())
            if _is_this_machine(address):
                # The proxy of the variable https_proxy knows no server on this machine.
                options.append(("grpc.enable_http_proxy", 0))
            if self.credentials:
                self.channels[address] = grpc.aio.secure_channel(address, self.credentials.channel, options)
            else:
                self.channels[address] = grpc.aio.insecure_channel(address, options)
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
        self, method: str, request: Any, response: type[Response], instance_id: str = ""
    ) -> Response:
        """The answer to a call; the very same call is made until it is answered or refused for good."""
        route = Route(self, instance_id)
        while True:
            try:
                answer = await self.call_at(route.server, method, request, response, CALL_TIMEOUT)
                route.note_answer()
                return answer
            except StickyCasError as error:
                await route.next_try(error)

    async def may_ask(self, address: str) -> bool:
        """Whether a server was given, or one that was given names it: a wrong one sends this client nowhere else."""
        for server in self.given:
            if address in self.addresses:
                break
            request = server_service_pb2.GetClusterRequest()
            response = server_service_pb2.GetClusterResponse
            try:
                told = await self.call_at(
                    server, "ServerService/GetCluster", request, response, ANSWER_TIMEOUT
                )
            except StickyCasError:
                continue
            new = {it.address for it in told.servers if it.address} - set(self.addresses)
            self.addresses += sorted(new)
        return address in self.addresses

    def next_server(self, instance_id: str, tried: set[str]) -> str:
        """The owner, if it is known and in reach; else the next server that was not tried."""
        _, owner = self.owners.get(instance_id, (0, ""))
        if owner and owner not in self.down:
            return owner
        turn = self.turn % len(self.addresses)
        in_order = self.addresses[turn:] + self.addresses[:turn]
        return next((address for address in in_order if address not in tried), in_order[0])

    def avoid(self, instance_id: str, address: str) -> None:
        """A server is not the owner, or does not answer: the next one is asked. The epoch stays known."""
        epoch, owner = self.owners.get(instance_id, (0, ""))
        if owner == address:
            self.owners[instance_id] = (epoch, "")
        if self.addresses[self.turn % len(self.addresses)] == address:
            self.turn += 1

    async def learn(self, instance_id: str, owner: str, epoch: int) -> bool:
        """A server has named an owner: whether to ask that one at once.

        Not if the epoch is older than the one known. Nor if that owner could not be reached and its epoch is not newer:
        until its lease has ended the others name it still. Without an id nothing is kept: epochs of different shards
        say nothing of each other.
        """
        known, _ = self.owners.get(instance_id, (0, ""))
        if epoch < known or not await self.may_ask(owner):
            return False
        if owner in self.down and epoch <= known:
            return False
        if instance_id:
            if len(self.owners) >= MOST_OWNERS:
                self.owners.clear()
            self.owners[instance_id] = (epoch, owner)
        self.down.discard(owner)
        return True


class Route:
    """The way of one call, or of one stream, to the server that answers it."""

    def __init__(self, servers: Servers, instance_id: str = "") -> None:
        self.servers, self.instance_id = servers, instance_id
        self.tried: set[str] = set()
        self.server = servers.next_server(instance_id, self.tried)
        self.failing_since: float | None = None
        self.redirects, self.pause = 0, FIRST_PAUSE

    def note_answer(self) -> None:
        """The server has answered."""
        self.failing_since, self.redirects, self.pause = None, 0, FIRST_PAUSE
        self.tried.clear()
        self.servers.down.discard(self.server)

    async def next_try(self, error: StickyCasError) -> None:
        """Chooses the server to ask next, and waits if that is due. Raises the error if nothing is to be asked again."""
        if not error.may_retry or isinstance(error, NotStickyCas):
            raise error
        log.warning("asks again: %s", error)
        refused = error if isinstance(error, Refused) else None
        # A call that waits for its phase ends with its deadline, too: pings tell whether the server is there.
        if refused is None and not str(error).startswith("DEADLINE_EXCEEDED"):
            self.servers.down.add(self.server)
        leaves = refused is None or refused.code == grpc.StatusCode.UNAVAILABLE
        if leaves:
            self.tried.add(self.server)
            self.servers.avoid(self.instance_id, self.server)
        owner = refused.owner if refused else None
        follows = owner is not None and owner[0] != self.server and self.redirects < MAX_REDIRECTS
        if owner and follows and await self.servers.learn(self.instance_id, *owner):
            self.redirects += 1
            self.server = owner[0]
            return
        waits = refused is None and self.server not in self.servers.down
        if waits or (refused and refused.reason in WILL_SERVE):
            self.failing_since = None
        else:
            self.failing_since = self.failing_since or time.monotonic()
            if time.monotonic() - self.failing_since > self.servers.give_up_after:
                raise error if refused else Unreachable(f"gave up: {error}")
        advised = refused.retry_after if refused else 0.0
        await asyncio.sleep(max(advised, self.pause * random.uniform(0.5, 1.0)))
        self.pause = min(2 * self.pause, LONGEST_PAUSE)
        self.redirects = 0
        if self.tried.issuperset(self.servers.addresses):
            self.tried.clear()
            self.servers.down.clear()
        if leaves:
            self.server = self.servers.next_server(self.instance_id, self.tried)


def _is_this_machine(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
