#!/usr/bin/env python3
"""Judges our server, a right client and the wrong ones of `wrong/`: each of those fails just the scripts
that `wrong/noticed.json` names. STICKYCAS_PROGRAMS is the folder of stickycas-server."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
import unittest
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

from script import HERE, load
from wire import Server

import client
import server

NOTICED = json.loads((HERE / "wrong" / "noticed.json").read_text())
TIMEOUT = 10.0


def module(name: str) -> ModuleType:
    """A module of `wrong/`."""
    spec = importlib.util.spec_from_file_location(f"wrong_{name}", HERE / "wrong" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


wrong_client, wrong_server = module("client"), module("server")


async def failures(results: AsyncIterator[tuple[str, dict[str, Any], str | None]]) -> dict[str, str]:
    """The scripts that failed, without their transport, and why."""
    return {name.split(" ")[0]: wrong async for name, _, wrong in results if wrong is not None}


class Scripts(unittest.TestCase):
    """The scripts themselves."""

    def test_names_begin_with_the_rule(self) -> None:
        for kind in ("server", "client"):
            for name, script in load(kind, []):
                self.assertTrue(name.startswith(script["rule"] + "-"), name)
                self.assertIsNotNone(re.fullmatch("[A-Za-z0-9-]+", name), name)


class Clients(unittest.TestCase):
    """A right client and wrong ones."""

    def failures(self, way: str) -> list[str]:
        async def play(task: dict[str, str]) -> dict[str, Any]:
            result: dict[str, Any] = await asyncio.to_thread(wrong_client.play, task, way)
            return result

        return sorted(asyncio.run(failures(client.judge(play, [], ["attach", "unary"], 4))))

    def test_a_right_client(self) -> None:
        self.assertEqual(self.failures(""), [])

    def test_a_right_client_that_is_a_program(self) -> None:
        play = client.program([sys.executable, str(HERE / "wrong" / "client.py")], TIMEOUT)
        judged = client.judge(play, ["D1-a-process", "D1-bytes"], ["attach", "unary"], 4)
        self.assertEqual(asyncio.run(failures(judged)), {})

    def test_wrong_clients(self) -> None:
        self.assertEqual(set(wrong_client.WAYS), NOTICED["clients"].keys())
        for way in wrong_client.WAYS:
            with self.subTest(way):
                self.assertEqual(self.failures(way), NOTICED["clients"][way])


class Servers(unittest.TestCase):
    """Our server and wrong ones."""

    def setUp(self) -> None:
        program = Path(os.environ["STICKYCAS_PROGRAMS"]) / "stickycas-server"
        command = [
            str(program),
            "serve",
            "--in-memory",
            "--insecure-principals",
            "--no-http",
            "--log",
            "error",
        ]
        command += ["--listen", "127.0.0.1:0", "--coordinator", "coordinator", "--observer", "observer"]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.stop)
        assert self.server.stdout is not None
        self.address = self.server.stdout.readline().split()[-1]

    def stop(self) -> None:
        self.server.kill()
        self.server.wait()
        assert self.server.stdout is not None
        self.server.stdout.close()

    async def failures(self, way: str) -> list[str]:
        proxy, port = await wrong_server.start(self.address, way)
        found = await failures(server.judge(Server(f"127.0.0.1:{port}", None), [], TIMEOUT, 32))
        await proxy.stop(1)
        return sorted(found)

    def test_our_server(self) -> None:
        self.assertEqual(asyncio.run(failures(server.judge(Server(self.address, None), [], TIMEOUT, 32))), {})

    def test_a_proxy_that_spoils_nothing(self) -> None:
        self.assertEqual(asyncio.run(self.failures("")), [])

    def test_wrong_servers(self) -> None:
        self.assertEqual(set(wrong_server.WAYS), NOTICED["servers"].keys())
        for way in wrong_server.WAYS:
            with self.subTest(way):
                found = asyncio.run(self.failures(way))
                if way == "answers-early":
                    # Named are the scripts that show an access to wait; others fail or not, as it happens.
                    found = [name for name in found if name in NOTICED["servers"][way]]
                self.assertEqual(found, NOTICED["servers"][way])


if __name__ == "__main__":
    unittest.main()
