"""Arguments, instances that are created, and proxies."""

from __future__ import annotations

import math
import socket
import tempfile
import unittest
from datetime import timedelta
from typing import Any
from unittest import mock

import grpc

import stickycas
from scripted import Break, WithServers
from stickycas._channels import _is_this_machine
from stickycas.v1 import instance_pb2


class Arguments(WithServers):
    def test_a_client_needs_servers_and_somebody_who_calls(self) -> None:
        folder = tempfile.gettempdir()
        cases: dict[str, dict[str, Any]] = {
            "server: give the address": {"server": [], "principal": "ann"},
            "begins with http": {"server": "https://a:1", "principal": "ann"},
            "begins with https": {"server": "http://a:1", "credentials": folder},
            "host and port": {"server": "http://localhost", "principal": "ann"},
            "give credentials, or the principal": {"server": "a:1"},
            "give_up_after is -1": {"server": "a:1", "principal": "ann", "give_up_after": -1},
            "give_up_after is nan": {"server": "a:1", "principal": "ann", "give_up_after": math.nan},
        }
        for wrong, given in cases.items():
            with self.assertRaisesRegex(ValueError, wrong):
                stickycas.Client(**given)

    async def test_what_is_no_instance_is_not_created(self) -> None:
        cases: dict[str, dict[str, Any]] = {
            "roster: give a list": {"roster": []},
            "roster: .*'ann', 'bob'": {"roster": "ann,bob"},
            "warp_size is 3: give 1 to 2": {"warp_size": 3},
            "read_size is 0: give 1 to 2": {"read_size": 0},
            "append_rounds is 3: give 1 to 2": {"append_rounds": 3, "warp_size": 2},
            "patience is -1": {"patience": -1},
            "pace is -60.0": {"pace": timedelta(minutes=-1)},
            "join_timeout is inf": {"join_timeout": math.inf},
        }
        async with self.client() as client:
            for wrong, given in cases.items():
                with self.assertRaisesRegex(ValueError, wrong):
                    await client.create("name", **{"roster": ["ann", "bob"], **given})
        self.assertEqual(self.servers[0].created, [])

    async def test_parameters_go_along(self) -> None:
        one, *_ = self.servers
        async with self.client(one.address) as client:
            await client.create("a", roster=["ann", "bob"], patience=1.5, pace=timedelta(minutes=1), seed=7)
            await client.create("b", roster=["ann"], patience=math.inf)
        first, second = one.created
        self.assertEqual((first.name, list(first.roster)), ("a", ["ann", "bob"]))
        wanted = first.parameters
        self.assertEqual((wanted.processes, wanted.warp_size, wanted.read_size, wanted.seed), (2, 1, 2, 7))
        self.assertEqual(wanted.patience.ToTimedelta().total_seconds(), 1.5)
        self.assertEqual(wanted.pace.seconds, 60)
        self.assertEqual(second.parameters.WhichOneof("patience_choice"), "endless_patience")
        self.assertIsInstance(second.parameters.endless_patience, instance_pb2.EndlessPatience)

    async def test_a_server_that_knows_no_append_rounds_is_told(self) -> None:
        one, *_ = self.servers
        async with self.client(one.address) as client:
            with self.assertRaisesRegex(stickycas.StickyCasError, "knows no append_rounds"):
                await client.create("name", roster=["ann", "bob"], warp_size=2, append_rounds=2)
            self.assertEqual(one.created[0].parameters.append_rounds, 2)
            one.parameters.append_rounds = 2
            await client.create("name", roster=["ann", "bob"], warp_size=2, append_rounds=2)

    async def test_what_has_no_name_is_created_once_at_most(self) -> None:
        one, *_ = self.servers
        for name, times in {"name": 2, "": 1}.items():
            one.created.clear()
            one.actions = [Break(grpc.StatusCode.UNAVAILABLE)]
            async with self.client(one.address) as client:
                try:
                    await client.create(name, roster=["ann"])
                except stickycas.Unreachable as error:
                    self.assertTrue(error.may_have_happened)
            self.assertEqual(len(one.created), times, name)

    async def test_an_instance_is_named_by_its_id_or_its_name(self) -> None:
        one, *_ = self.servers
        async with self.client(one.address) as client:
            await client.get("0" * 32)
            await client.get("0" * 31)
        self.assertEqual(one.asked, ["get it", "get " + "0" * 31])

    async def test_a_server_on_this_machine_is_reached_without_the_proxy(self) -> None:
        # Nothing listens at this proxy.
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            proxy = f"http://127.0.0.1:{unused.getsockname()[1]}"
        self.enterContext_(mock.patch.dict("os.environ", http_proxy=proxy, https_proxy=proxy))
        async with self.client(self.servers[0].address, give_up_after=0) as client:
            await client.get("name")
        here = {
            "127.1.2.3:1": True,
            "[::1]:1": True,
            "localhost:1": True,
            "10.0.0.1:1": False,
            "a.org:1": False,
        }
        self.assertEqual({address: _is_this_machine(address) for address in here}, here)


if __name__ == "__main__":
    unittest.main()
