"""The events of an instance: each once, over broken streams, and of the same history."""

from __future__ import annotations

import unittest
from types import SimpleNamespace
from unittest import mock

import grpc

import stickycas
from scripted import INSTANCE, Break, Hang, Refusal, WithServers, not_owner
from stickycas import _servers, _watch
from stickycas.v1 import history_pb2, instance_pb2


def joined(index: int, process: int = 1) -> history_pb2.Event:
    """An event."""
    return history_pb2.Event(index=index, joined=history_pb2.Event.Joined(process=process))


def stepped(index: int, phase: int) -> history_pb2.Event:
    """A phase."""
    return history_pb2.Event(index=index, stepped=history_pb2.Event.Stepped(phase=phase))


def finished(index: int) -> history_pb2.Event:
    """The end."""
    return history_pb2.Event(index=index, finished=history_pb2.Event.Finished())


class Watches(WithServers):
    async def watched(self) -> list[int]:
        """The indices of the events of the instance, which has two servers."""
        one, two, _ = self.servers
        async with self.client(one.address, two.address) as client:
            return [event.index async for event in client.watch(INSTANCE)]

    async def test_it_goes_on_at_the_new_owner_from_the_phase_that_it_knows(self) -> None:
        one, two, _ = self.servers
        one.histories = [[joined(0), stepped(1, 4), joined(2)]]
        one.actions = [None, Refusal("OWNER_LOST", owner=two.address, epoch=6)]
        two.histories = [[stepped(1, 4), joined(2), joined(3), finished(4)]]
        self.assertEqual(await self.watched(), [0, 1, 2, 3, 4])
        self.assertEqual([one.asked, two.asked], [["get it", "watch 0"], ["watch 4"]])

    async def test_a_stream_that_breaks_is_opened_again_whatever_its_code(self) -> None:
        one, two, _ = self.servers
        for code in [grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED]:
            one.histories = [[joined(0)], [joined(0), finished(1)]]
            one.actions, two.always = [None, Break(code)], not_owner(one, 5)
            self.assertEqual(await self.watched(), [0, 1], code)

    async def test_a_history_may_end_without_its_last_event(self) -> None:
        one, two, _ = self.servers
        one.histories, two.histories = [[joined(0)]], [[joined(0)], [joined(0)]]
        self.assertEqual(await self.watched(), [0])

    async def test_streams_that_end_do_not_end_the_watch_of_an_instance_that_runs(self) -> None:
        one, *_ = self.servers
        one.state = instance_pb2.STATE_RUNNING
        one.histories = [[joined(0)], [joined(0)], [joined(0)], [], [joined(0), finished(1)]]
        async with self.client(one.address) as client:
            self.assertEqual([event.index async for event in client.watch(INSTANCE)], [0, 1])
        self.assertEqual(one.asked, ["get it", *["watch 0", "get it"] * 4, "watch 0"])

    async def test_an_instance_that_is_not_known_any_more_has_ended(self) -> None:
        one, *_ = self.servers
        one.histories = [[joined(0)]]
        one.actions = [None, None, Refusal("INSTANCE_UNKNOWN", grpc.StatusCode.NOT_FOUND)]
        async with self.client(one.address) as client:
            self.assertEqual([event.index async for event in client.watch(INSTANCE)], [0])
        self.assertEqual(one.asked, ["get it", "watch 0", "get it"])

    async def test_a_refusal_of_the_look_at_the_instance_is_raised(self) -> None:
        one, *_ = self.servers
        one.histories = [[joined(0)]]
        one.actions = [None, None, Refusal("NOT_OBSERVER", grpc.StatusCode.PERMISSION_DENIED)]
        async with self.client(one.address) as client:
            with self.assertRaisesRegex(stickycas.Refused, "NOT_OBSERVER"):
                _ = [event async for event in client.watch(INSTANCE)]

    async def test_streams_that_end_without_anything_new_are_opened_more_and_more_slowly(self) -> None:
        one, *_ = self.servers
        one.state = instance_pb2.STATE_RUNNING
        one.histories = [*[[joined(0)]] * 6, [joined(0), finished(1)]]
        self.enterContext_(mock.patch.object(_servers, "time", SimpleNamespace(monotonic=lambda: 1.0)))
        async with self.client(one.address) as client:
            self.assertEqual([event.index async for event in client.watch(INSTANCE)], [0, 1])
        self.assertGreater(self.pauses[5], 2 * _servers.FIRST_PAUSE)

    async def test_a_final_refusal_is_raised(self) -> None:
        one, *_ = self.servers
        one.actions = [None, Refusal("NOT_A_MEMBER", grpc.StatusCode.PERMISSION_DENIED)]
        with self.assertRaisesRegex(stickycas.Refused, "NOT_A_MEMBER"):
            await self.watched()

    async def test_streams_may_end_as_often_as_there_is_something_new(self) -> None:
        one, two, _ = self.servers
        two.always = not_owner(one, 5)
        one.histories = [[joined(0)], [joined(0), joined(1)], [joined(0), joined(1), finished(2)]]
        self.assertEqual(await self.watched(), [0, 1, 2])

    async def test_another_history_is_a_loss(self) -> None:
        one, two, _ = self.servers
        for then, what in [
            ([joined(0), joined(1, process=2)], "event 1 is not what it was"),
            ([joined(2)], "events 1 to 1 are missing"),
            ([joined(0), joined(2)], "events 1 to 1 are missing"),
            ([], "there were 2 events, and now there are 0"),
        ]:
            one.histories, two.histories = [[joined(0), joined(1)]], [then, then]
            one.actions = [None, Refusal("OWNER_LOST", owner=two.address, epoch=6)]
            with self.assertRaisesRegex(stickycas.Lost, what):
                await self.watched()

    async def test_a_server_that_was_silent_is_probed_first(self) -> None:
        one, *_ = self.servers
        one.answers_probes = False
        self.enterContext_(mock.patch.object(_servers, "PROBE_TIMEOUT", 0.05))
        async with self.client(one.address, "127.0.0.1:1", give_up_after=0) as client:
            client._servers.down.update(client._servers.given)
            with self.assertRaisesRegex(stickycas.Unreachable, "does not answer"):
                await anext(_watch.events(client._servers, INSTANCE))
        self.assertEqual(one.asked, [])

    async def test_a_gap_is_a_loss(self) -> None:
        one, *_ = self.servers
        one.histories = [[joined(0), joined(2), finished(3)]]
        with self.assertRaisesRegex(stickycas.Lost, "1 to 1 are missing"):
            await self.watched()

    async def test_a_server_with_fewer_events_is_noticed_before_it_shows_any(self) -> None:
        one, two, _ = self.servers
        one.histories = [[joined(0), joined(1)]]
        one.actions = [None, Refusal("OWNER_LOST", owner=two.address, epoch=6)]
        two.next_event, two.always = 1, Hang()
        with self.assertRaisesRegex(stickycas.Lost, "there were 2 events, and now there are 1"):
            await self.watched()

    async def test_whoever_stops_watching_ends_the_stream(self) -> None:
        one, *_ = self.servers
        one.histories, one.actions = [[joined(0), joined(1)]], [None, Hang()]
        async with self.client(one.address) as client:
            events = client.watch(INSTANCE)
            self.assertEqual((await anext(events)).index, 0)
            await events.aclose()
            await one.left.wait()


if __name__ == "__main__":
    unittest.main()
