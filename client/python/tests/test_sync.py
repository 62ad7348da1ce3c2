"""The client without asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
import unittest
from collections.abc import Callable
from unittest import mock

from scripted import INSTANCE, Hang, WithServers
from stickycas import Process
from stickycas.sync import Client
from test_watch import joined

# Shorter than a call without an answer takes by itself, in seconds.
LIMIT = 5.0


class WithoutAsyncio(WithServers):
    """The client runs in another thread than the server that it calls."""

    async def run_sync(self, program: Callable[[Client], None]) -> None:
        """Runs a program that has a client of the first server."""

        def whole() -> None:
            with Client(f"http://{self.servers[0].address}", principal="ann") as client:
                program(client)

        await asyncio.to_thread(whole)

    async def test_it_creates_finds_and_decides(self) -> None:
        def program(client: Client) -> None:
            self.assertEqual(client.create("name", roster=["ann"]).instance_id, INSTANCE)
            self.assertEqual(client.get("name").instance.instance_id, INSTANCE)
            self.assertEqual(client.propose("name", b"x"), b"x")

        await self.run_sync(program)
        self.assertIn("decide x", self.servers[0].asked)

    async def test_whoever_stops_watching_ends_the_stream(self) -> None:
        one, *_ = self.servers

        def program(client: Client) -> None:
            for event in client.watch(INSTANCE):
                self.assertEqual(event.index, 0)
                break
            asyncio.run_coroutine_threadsafe(one.left.wait(), loop).result()

        loop = asyncio.get_running_loop()
        one.histories, one.actions = [[joined(0), joined(1)]], [None, Hang()]
        await self.run_sync(program)

    async def test_the_client_may_be_closed_before_the_watch(self) -> None:
        one, *_ = self.servers
        kept = []

        def program(client: Client) -> None:
            kept.append(client.watch(INSTANCE))
            self.assertEqual(next(kept[0]).index, 0)

        one.histories, one.actions = [[joined(0)]], [None, Hang()]
        await self.run_sync(program)
        await one.left.wait()
        with self.assertRaisesRegex(RuntimeError, "the client is closed"):
            next(kept[0])

    async def test_calls_that_wait_in_other_threads_end_when_the_client_is_closed(self) -> None:
        playing, errors = threading.Event(), []

        async def endless(process: Process) -> bytes:
            playing.set()
            await asyncio.Event().wait()
            return b"x"

        def end(call: Callable[[], object]) -> None:
            with self.assertRaises(RuntimeError) as raised:
                call()
            errors.append(str(raised.exception))

        def program(client: Client) -> None:
            watch = client.watch(INSTANCE)
            self.assertEqual(next(watch).index, 0)
            calls: list[Callable[[], object]] = [lambda: next(watch), lambda: client.play(INSTANCE, endless)]
            threads = [threading.Thread(target=end, args=[call], daemon=True) for call in calls]
            for thread in threads:
                thread.start()
            self.assertTrue(playing.wait(LIMIT))
            client.close()
            for thread in threads:
                thread.join(LIMIT)

        one, *_ = self.servers
        one.histories, one.actions = [[joined(0)]], [None, Hang()]
        await self.run_sync(program)
        self.assertEqual(len(errors), 2)
        # The watch may have come to its call only then.
        self.assertIn("the client was closed during the call", errors)

    async def test_whoever_is_interrupted_ends_the_call(self) -> None:
        one, *_ = self.servers

        def interrupted(_: object) -> None:
            while not one.asked:
                time.sleep(0.001)
            raise KeyboardInterrupt

        def program(client: Client) -> None:
            replaced = mock.patch.object(concurrent.futures.Future, "result", interrupted)
            with replaced, self.assertRaises(KeyboardInterrupt):
                client.get("name")
            asyncio.run_coroutine_threadsafe(one.left.wait(), loop).result(LIMIT)

        loop = asyncio.get_running_loop()
        one.actions = [Hang()]
        await self.run_sync(program)

    def test_a_client_that_cannot_be_made_leaves_no_thread(self) -> None:
        before = threading.active_count()
        with self.assertRaises(ValueError):
            Client([], principal="ann")
        self.assertEqual(threading.active_count(), before)


if __name__ == "__main__":
    unittest.main()
