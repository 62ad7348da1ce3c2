"""The instances of all servers of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stickycas._servers import CALL_TIMEOUT, Route, Servers
from stickycas.errors import StickyCasError
from stickycas.v1 import instance_pb2, instance_service_pb2


@dataclass(frozen=True)
class Listed:
    """The instances that a client may see."""

    instances: list[instance_pb2.InstanceSummary]
    """By id."""
    shards_left_out: int
    """Of how many shards of a cluster no server has told all instances: they are taken over at the moment, or have no owner.
    More instances may be in them; a later list has them."""


class _Parts:
    """What servers have listed."""

    def __init__(self) -> None:
        self.found: dict[str, instance_pb2.InstanceSummary] = {}
        self.shards: set[int] = set()
        self.of_cluster = 0

    def add(self, summaries: Iterable[instance_pb2.InstanceSummary]) -> None:
        """An instance that moves meanwhile may come twice: no state comes again, so the later counts."""
        for summary in summaries:
            known = self.found.get(summary.instance_id)
            if known is None or known.state < summary.state:
                self.found[summary.instance_id] = summary

    def whole(self) -> Listed:
        """What all of them list together."""
        instances = [self.found[instance_id] for instance_id in sorted(self.found)]
        return Listed(instances, max(0, self.of_cluster - len(self.shards)))


async def list_all(servers: Servers, request: instance_service_pb2.ListRequest) -> Listed:
    """See `Client.list`."""
    route = Route(servers)
    while True:
        try:
            parts, asked, left = _Parts(), set[str](), [route.server]
            while left:
                route.server = left.pop()
                asked.add(route.server)
                others = await _list_of(servers, route.server, request, parts)
                left += [it for it in others if it not in asked and it not in left]
            return parts.whole()
        except StickyCasError as error:
            # By the next time others may own the instances of a server that does not answer.
            await route.next_try(error)


async def _list_of(
    servers: Servers, server: str, request: instance_service_pb2.ListRequest, parts: _Parts
) -> list[str]:
    """Adds the instances of one server, page by page, and returns the other servers that may be asked."""
    await servers.probe(server)
    shards: set[int] | None = None
    while True:
        page = await servers.call_at(
            server, "InstanceService/List", request, instance_service_pb2.ListResponse, CALL_TIMEOUT
        )
        parts.add(page.instances)
        # A shard that moves between two pages may be on neither.
        listed = set(page.listed_shards)
        shards = listed if shards is None else shards & listed
        if not page.next_page_token:
            parts.shards |= shards
            parts.of_cluster = max(parts.of_cluster, page.shards)
            return [it for it in page.other_servers if await servers.may_ask(it)]
        following = instance_service_pb2.ListRequest()
        following.CopyFrom(request)
        following.page_token = page.next_page_token
        request = following
