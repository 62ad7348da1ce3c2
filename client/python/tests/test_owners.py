"""Which server is asked: owners, epochs, servers that are down (docs/use/clients.md, a cluster)."""

from __future__ import annotations

import unittest
from unittest import mock

import grpc

import stickycas
from scripted import INSTANCE, Pausable, Refusal, Scripted, WithServers, not_owner
from stickycas import _channels, _servers
from stickycas._servers import MAX_REDIRECTS, Servers

PLAYED = ["append 1 x", "read 2 0", "decide x"]


class Owners(WithServers):
    async def play(self, client: stickycas.Client, *, unary: bool = True) -> bytes:
        return await client.propose(INSTANCE, b"x", unary=unary)

    async def test_the_owner_is_asked_and_remembered(self) -> None:
        one, two, _ = self.servers
        one.actions = [not_owner(two, 5)]
        async with self.client() as client:
            self.assertEqual(await self.play(client), b"x")
        self.assertEqual([one.asked, two.asked], [["get it"], ["get it", *PLAYED]])
        self.assertEqual(self.pauses, [], "an owner is asked at once")

    async def test_an_access_whose_owner_was_deposed_is_sent_to_the_new_one_with_the_same_number(
        self,
    ) -> None:
        one, two, three = self.servers
        two.actions = [None, Refusal("OWNER_LOST", owner=three.address, epoch=6)]
        one.actions = [not_owner(two, 5)]
        async with self.client() as client:
            await self.play(client)
        self.assertEqual([two.asked, three.asked], [["get it", "append 1 x"], PLAYED])

    async def test_so_it_is_on_a_stream(self) -> None:
        one, two, three = self.servers
        one.actions = [None, None, Refusal("OWNER_LOST", owner=three.address, epoch=6)]
        async with self.client() as client:
            await self.play(client, unary=False)
        self.assertEqual([one.asked, two.asked], [["get it", "hello", "append 1 x"], []])
        self.assertEqual(three.asked, ["hello", *PLAYED])

    async def test_without_an_owner_the_next_server_is_asked_after_a_pause(self) -> None:
        one, two, _ = self.servers
        one.actions = [not_owner()]
        async with self.client() as client:
            await self.play(client)
        self.assertEqual([one.asked, two.asked], [["get it"], ["get it", *PLAYED]])
        self.assertEqual(len(self.pauses), 1)

    async def test_an_owner_that_reads_its_log_is_asked_again_however_long_that_takes(self) -> None:
        one, two, _ = self.servers
        one.actions = [Refusal("RECOVERING")] * 3
        two.always = not_owner(one, 5)
        async with self.client(one.address, two.address, give_up_after=0) as client:
            await self.play(client)
        self.assertEqual(one.asked, ["get it"] * 4 + PLAYED)
        self.assertEqual(len(self.pauses), 3)

    async def test_a_wait_is_as_long_as_the_server_advises(self) -> None:
        one, *_ = self.servers
        one.actions = [Refusal("RATE_EXCEEDED", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after=0.75)]
        async with self.client() as client:
            await client.get("name")
        self.assertEqual([self.pauses, one.asked], [[0.75], ["get name"] * 2])

    async def test_pauses_grow_up_to_a_bound(self) -> None:
        one, *_ = self.servers
        one.actions = [Refusal("RECOVERING")] * 6
        async with self.client(one.address) as client:
            await client.get("name")
        for pause, longest in zip(self.pauses, [0.05, 0.1, 0.2, 0.4, 0.5, 0.5], strict=True):
            self.assertTrue(longest / 2 <= pause <= longest, self.pauses)

    async def test_a_dead_server_is_passed_over(self) -> None:
        one, two, _ = self.servers
        await one.server.stop(None)
        async with self.client() as client:
            await self.play(client)
        self.assertEqual(two.asked, ["get it", *PLAYED])

    async def test_a_server_that_drains_is_left_with_its_stream(self) -> None:
        one, two, _ = self.servers
        one.actions = [None, None, Refusal("DRAINING")]
        async with self.client() as client:
            await self.play(client, unary=False)
        self.assertEqual([one.asked, two.asked], [["get it", "hello", "append 1 x"], ["hello", *PLAYED]])

    async def test_a_dead_server_that_others_still_name_is_not_followed(self) -> None:
        one, two, three = self.servers
        await one.server.stop(None)
        two.actions = [not_owner(one, 5)]
        async with self.client() as client:
            with self.assertLogs("stickycas") as logged:
                await client.get(INSTANCE)
        self.assertEqual([two.asked, three.asked], [["get it"]] * 2)
        self.assertEqual(sum("UNAVAILABLE" in line for line in logged.output), 1)

    async def test_redirects_are_bounded(self) -> None:
        one, two, _ = self.servers
        one.always, two.always = not_owner(two, 5), not_owner(one, 5)
        async with self.client(give_up_after=0) as client:
            with self.assertRaises(stickycas.Refused):
                await client.get(INSTANCE)
        self.assertEqual(len(one.asked) + len(two.asked), 1 + MAX_REDIRECTS)

    async def test_an_owner_that_nobody_who_was_given_knows_is_not_asked(self) -> None:
        stranger = Scripted()
        await stranger.start()
        self.addAsyncCleanup(stranger.server.stop, None)
        for server in self.servers:
            server.always = not_owner(stranger, 9)
        async with self.client(give_up_after=0) as client:
            with self.assertRaises(stickycas.Refused):
                await client.get(INSTANCE)
        self.assertEqual(stranger.asked, [])

    async def test_an_owner_that_a_given_server_names_is_asked(self) -> None:
        one, two, _ = self.servers
        one.actions, one.named = [not_owner(two, 5)], [one.address, two.address]
        async with self.client(one.address) as client:
            await self.play(client)
        self.assertEqual(two.asked, ["get it", *PLAYED])

    async def test_an_older_epoch_is_ignored(self) -> None:
        servers = Servers(["a:1", "http://b:1"], None, "ann", 0)
        self.assertTrue(await servers.learn(INSTANCE, "b:1", 5))
        self.assertFalse(await servers.learn(INSTANCE, "a:1", 4))
        self.assertEqual(servers.next_server(INSTANCE, set()), "b:1")
        servers.avoid(INSTANCE, "b:1")
        self.assertEqual(servers.next_server(INSTANCE, set()), "a:1")
        self.assertFalse(await servers.learn(INSTANCE, "a:1", 4), "the epoch stays known")
        self.assertTrue(await servers.learn(INSTANCE, "a:1", 6))

    async def test_an_owner_that_is_down_is_followed_for_a_newer_epoch_alone(self) -> None:
        servers = Servers(["a:1", "b:1"], None, "ann", 0)
        servers.down.add("b:1")
        self.assertFalse(await servers.learn(INSTANCE, "b:1", 5), "it may be the epoch in which it died")
        self.assertFalse(await servers.learn(INSTANCE, "b:1", 5))
        self.assertEqual(servers.next_server(INSTANCE, set()), "a:1")
        self.assertTrue(await servers.learn(INSTANCE, "b:1", 6), "it was started again")

    async def test_a_name_leads_to_owners_whose_epochs_are_not_compared(self) -> None:
        one, two, three = self.servers
        # The next instance of the name is in another shard.
        one.actions, two.actions = [not_owner(two, 9)], [None, not_owner(three, 2)]
        async with self.client() as client:
            await client.get("name")
            await client.get("name")
        self.assertEqual([two.asked, three.asked], [["get name"] * 2, ["get name"]])

    async def test_a_server_that_is_paused_is_left(self) -> None:
        one, two, _ = self.servers
        paused = Pausable(one)
        await paused.start()
        self.addAsyncCleanup(paused.stop)
        soon = {
            "grpc.keepalive_time_ms": 1000,
            "grpc.keepalive_timeout_ms": 1000,
            "grpc.http2.ping_timeout_ms": 1000,
        }
        self.enterContext_(mock.patch.dict(_channels.OPTIONS, soon))
        async with self.client(paused.address, two.address) as client:
            await client.get("name")
            paused.goes_on.clear()
            await self.play(client, unary=False)
        self.assertEqual([one.asked, two.asked], [["get name"], ["get it", "hello", *PLAYED]])

    async def test_an_owner_that_is_silent_is_asked_after_all_others_and_when_it_answers_a_probe(
        self,
    ) -> None:
        one, two, three = self.servers
        two.always = three.always = not_owner(one, 5)
        async with self.client(two.address, three.address, one.address) as client:
            await client.get(INSTANCE)
            self.assertEqual([one.asked, two.asked, three.asked], [["get it"], ["get it"], []])
            client._servers.down.add(one.address)
            one.answers_probes = False
            self.enterContext_(mock.patch.object(_servers, "PROBE_TIMEOUT", 2))
            with self.assertLogs("stickycas") as logged:
                await self.until_probed(client, one)
        # Once in each round of all others; and while it is silent it is asked for nothing else.
        self.assertEqual([one.asked, len(two.asked), len(three.asked)], [["get it"] * 2, 3, 2])
        self.assertEqual(sum("does not answer" in line for line in logged.output), 1)

    async def until_probed(self, client: stickycas.Client, silent: Scripted) -> None:
        """Gets the instance from a server that answers again after its first probe."""
        answers = client._servers.answers

        async def once_silent(address: str) -> bool:
            told = await answers(address)
            silent.answers_probes = True
            return told

        with mock.patch.object(client._servers, "answers", once_silent):
            await client.get(INSTANCE)

    async def test_it_gives_up_when_nobody_answers(self) -> None:
        for server in self.servers:
            await server.server.stop(None)
        async with self.client(give_up_after=0) as client:
            with self.assertRaisesRegex(stickycas.Unreachable, "gave up"):
                await client.get("name")


if __name__ == "__main__":
    unittest.main()
