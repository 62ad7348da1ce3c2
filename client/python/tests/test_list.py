"""The instances of all servers."""

from __future__ import annotations

import unittest
from unittest import mock

import grpc

import stickycas
from scripted import INSTANCE, Break, WithServers
from stickycas import _servers
from stickycas.v1 import instance_pb2
from stickycas.v1.instance_service_pb2 import ListResponse

RUNNING, CLOSED = instance_pb2.STATE_RUNNING, instance_pb2.STATE_CLOSED


def summary(number: int, state: instance_pb2.State) -> instance_pb2.InstanceSummary:
    """What a list shows of an instance."""
    return instance_pb2.InstanceSummary(instance_id=f"{number:032x}", state=state)


class Lists(WithServers):
    async def test_all_servers_are_listed_and_the_later_state_counts(self) -> None:
        one, two, _ = self.servers
        one.pages = [
            ListResponse(
                instances=[summary(3, CLOSED)], next_page_token="1", listed_shards=[0, 1, 2], shards=4
            ),
            ListResponse(
                instances=[summary(2, RUNNING)], other_servers=[two.address], listed_shards=[1, 2], shards=4
            ),
        ]
        of_two = [summary(3, RUNNING), summary(2, CLOSED), summary(1, RUNNING)]
        two.pages = [ListResponse(instances=of_two, other_servers=[one.address], listed_shards=[3], shards=4)]
        async with self.client(one.address, two.address) as client:
            listed = await client.list()
        self.assertEqual(listed.instances, [summary(1, RUNNING), summary(2, CLOSED), summary(3, CLOSED)])
        self.assertEqual(listed.shards_left_out, 1, "shard 0 was on the first page only")
        self.assertEqual([one.asked, two.asked], [["list 0", "list 1"], ["list 0"]])

    async def test_a_server_alone_leaves_nothing_out(self) -> None:
        one, *_ = self.servers
        one.pages = [ListResponse(listed_shards=[0], shards=1)]
        async with self.client(one.address) as client:
            self.assertEqual((await client.list()).shards_left_out, 0)

    async def test_if_a_server_is_down_all_are_asked_again_and_by_then_others_own_its_shards(self) -> None:
        one, two, three = self.servers
        both = [two.address, three.address]
        one.pages = [ListResponse(other_servers=both, listed_shards=[0], shards=3)]
        three.pages = [ListResponse(instances=[summary(9, RUNNING)], listed_shards=[2], shards=3)]
        two.actions = [Break(grpc.StatusCode.UNAVAILABLE)]
        two.pages = [ListResponse(other_servers=[three.address], listed_shards=[1], shards=3)]

        async with self.client() as client:
            followed = client._servers.avoid

            def takes_over(instance_id: str, address: str) -> None:
                self.assertEqual(address, two.address, "the server that is down, and not the first one")
                one.pages = [ListResponse(other_servers=[three.address], listed_shards=[0, 1], shards=3)]
                followed(instance_id, address)

            client._servers.avoid = takes_over
            listed = await client.list()
        self.assertEqual([it.instance_id[-1] for it in listed.instances], ["9"])
        self.assertEqual(listed.shards_left_out, 0)

    async def test_an_address_that_nobody_who_was_given_knows_is_not_asked(self) -> None:
        one, two, _ = self.servers
        one.pages = [ListResponse(other_servers=[two.address], listed_shards=[0], shards=2)]
        async with self.client(one.address) as client:
            self.assertEqual((await client.list()).shards_left_out, 1)
        self.assertEqual(two.asked, [])

    async def test_a_server_that_was_silent_is_probed_first(self) -> None:
        one, two, _ = self.servers
        one.pages = [ListResponse(other_servers=[two.address], listed_shards=[0], shards=2)]
        two.answers_probes = False
        self.enterContext_(mock.patch.object(_servers, "PROBE_TIMEOUT", 0.05))
        async with self.client(one.address, two.address, give_up_after=0) as client:
            client._servers.down.add(two.address)
            with self.assertRaisesRegex(stickycas.Unreachable, "does not answer"):
                await client.list()
        self.assertEqual(two.asked, [])

    async def test_what_is_wanted_goes_along(self) -> None:
        one, *_ = self.servers
        one.pages = [ListResponse()]
        async with self.client(one.address) as client:
            await client.list(states=[RUNNING], text=INSTANCE)
        (wanted,) = one.listed
        self.assertEqual([list(wanted.states), wanted.text], [[RUNNING], INSTANCE])


if __name__ == "__main__":
    unittest.main()
