#!/usr/bin/env python3
"""Judges our server, a right client and the wrong ones of `wrong/`: each of those fails just the scripts
that `wrong/noticed.json` names. A script fails as well when one thing that it expects is changed.
STICKYCAS_PROGRAMS is the folder of stickycas-server."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
import unittest
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
from google.protobuf.message import Message
from script import HERE, difference, load
from wire import Server

import client
import server
from stickycas.v1 import access_pb2

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


def changes(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """What is expected with one thing in it changed, and where that is."""
    if isinstance(value, dict) and value and "hex" not in value:
        for name, item in value.items():
            for path, changed in changes(item, f"{where}.{name}"):
                yield path, {**value, name: changed}
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            for path, changed in changes(item, f"{where}[{index}]"):
                yield path, [*value[:index], changed, *value[index + 1 :]]
    elif isinstance(value, str):
        # An enum may stand as a number, too, and then as one that it does not have.
        enum = re.fullmatch("[A-Z]+(_[A-Z]+)+", value) and not where.startswith(("refusal", "ends"))
        yield where, 99 if enum else value + "-changed"
    elif isinstance(value, bool):
        yield where, not value
    elif isinstance(value, int):
        yield where, value + 1
    elif isinstance(value, list):
        yield where, [{}]
    else:
        yield where, {"hex": value["hex"] + "00"} if value else {} if value is None else None


def changed_scripts(script: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """The script with one thing changed that it expects: what that is, in which step, and the script."""
    steps = script["steps"]
    for index, step in enumerate(steps):
        for key in ["answer", "refusal", "frames", "events", "snapshot", "status", "takes", "at"]:
            if not step.get(key) or "send" in step:
                continue
            found = changes(step[key], key)
            if key == "takes" and not any(step[key].values()):
                # A Get or a Hello.
                found = iter([(key, {"access": {"number": 99}})])
            for path, changed in found:
                others = [*steps[:index], {**step, key: changed}, *steps[index + 1 :]]
                yield f"step {index + 1} {path}", index + 1, {**script, "steps": others}
    for path, changed in changes(script["ends"], "ends") if "ends" in script else ():
        yield path, 0, {**script, "ends": changed}


async def unnoticed(
    kind: str, jobs: int, notices: Callable[[int, dict[str, Any]], Awaitable[bool]]
) -> list[str]:
    """The changes after which a script still passes."""
    turn = asyncio.Semaphore(jobs)

    async def one(what: str, step: int, script: dict[str, Any]) -> str | None:
        async with turn:
            return None if await notices(step, script) else what

    plays = [
        one(f"{name} {what}", step, changed)
        for name, script in load(kind, [])
        for what, step, changed in [*changed_scripts(script)] or [("expects nothing", 0, script)]
    ]
    return [what for what in await asyncio.gather(*plays) if what is not None]


class ChangedPlay(server.Play):
    """A script of which one step is changed: a status that never comes is not awaited for long."""

    changed = 0

    async def status(self, wrong: Callable[[Message], str | None]) -> None:
        if self.step == self.changed:
            self.timeout = 0.5
        await super().status(wrong)


class Scripts(unittest.TestCase):
    """The scripts themselves."""

    def test_names_begin_with_the_rule(self) -> None:
        for kind in ("server", "client"):
            for name, script in load(kind, []):
                self.assertTrue(name.startswith(script["rule"] + "-"), name)
                self.assertIsNotNone(re.fullmatch("[A-Za-z0-9-]+", name), name)

    def test_an_absent_field_is_not_its_default_value(self) -> None:
        result = access_pb2.AppendResult()
        self.assertIsNotNone(difference(result, {"position": 0}))
        self.assertIsNone(difference(result, {"position": None}))
        result.position = 0
        self.assertIsNone(difference(result, {"position": 0}))
        self.assertIsNotNone(difference(result, {"position": None}))


class Clients(unittest.TestCase):
    """A right client and wrong ones."""

    maxDiff = None

    @staticmethod
    def client(way: str) -> client.Client:
        async def play(task: dict[str, str]) -> dict[str, Any]:
            result: dict[str, Any] = await asyncio.to_thread(wrong_client.play, task, way)
            return result

        return play

    def failures(self, way: str) -> list[str]:
        return sorted(asyncio.run(failures(client.judge(self.client(way), [], ["attach", "unary"], 4))))

    def test_a_right_client(self) -> None:
        self.assertEqual(self.failures(""), [])

    def test_each_script_can_fail(self) -> None:
        async def notices(_: int, script: dict[str, Any]) -> bool:
            transport = script.get("transports", ["attach"])[0]
            return await client.play_one(self.client(""), script, transport) is not None

        self.assertEqual(asyncio.run(unnoticed("client", 4, notices)), [])

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

    maxDiff = None

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

    def test_each_script_can_fail(self) -> None:
        async def play_all() -> list[str]:
            channels: dict[str | None, grpc.aio.Channel] = {}

            async def notices(step: int, script: dict[str, Any]) -> bool:
                play = ChangedPlay(Server(self.address, None), channels, TIMEOUT)
                play.changed = step
                return (await play.run(script) or "").startswith(f"step {step},")

            found = await unnoticed("server", 32, notices)
            await asyncio.gather(*(channel.close() for channel in channels.values()))
            return found

        self.assertEqual(asyncio.run(play_all()), [])

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
