#!/usr/bin/env python3
"""A client of StickyCAS on the package `stickycas` (client/python): a process, a coordinator, a watcher.

Exit code: 0 done, 1 refused or no decision, 2 wrong usage or credentials that cannot be used.
"""

import argparse
import asyncio
import logging
import signal
import sys

import stickycas
from stickycas.v1 import history_pb2

# Between two looks for an instance that is not there yet, in seconds.
LOOK_AGAIN = 0.1


def arguments() -> argparse.Namespace:
    """The command line, the same as that of the examples in other languages, and --wait and --again."""
    parser = argparse.ArgumentParser(prog="stickycas-python")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ["propose", "create", "watch"]:
        command = commands.add_parser(name)
        command.add_argument("--server", required=True, metavar="HOST:PORT[,HOST:PORT]")
        command.add_argument(
            "--credentials", metavar="DIR", help="ca.crt, and tls.crt with tls.key, or token"
        )
        command.add_argument(
            "--principal", metavar="NAME", help="who the caller is, where no credentials tell it"
        )
        command.add_argument("--give-up-after", type=float, default=30.0, metavar="SECONDS")
        if name == "create":
            command.add_argument("--name", required=True)
            command.add_argument("--processes", type=int, required=True, metavar="N")
            command.add_argument("--warp-size", type=int, required=True, metavar="P")
            command.add_argument("--read-size", type=int, required=True, metavar="R")
            command.add_argument("--append-rounds", type=int, default=1, metavar="Q")
            command.add_argument("--roster", required=True, metavar="A,B,C")
            command.add_argument("--patience", type=float, metavar="SECONDS")
        else:
            command.add_argument("--instance", required=True, metavar="NAME_OR_ID")
        if name == "watch":
            command.add_argument("--wait", action="store_true", help="until there is such an instance")
        if name == "propose":
            command.add_argument("--value", required=True, metavar="TEXT")
            command.add_argument(
                "--unary", action="store_true", help="a call for each access, in place of a stream"
            )
            command.add_argument(
                "--again", action="store_true", help="wait for each next instance of this name, without end"
            )
    given = parser.parse_args()
    if given.command == "create" and given.processes != len(given.roster.split(",")):
        parser.error("--roster names as many principals as there are --processes")
    return given


async def propose(client: stickycas.Client, given: argparse.Namespace) -> None:
    """Plays one correct process, or that of one instance of the name after the other."""
    if not given.again:
        await play(client, given.instance, given)
    last = ""
    while given.again:
        last = await find(client, given.instance, last)
        try:
            await play(client, last, given)
        except stickycas.StickyCasError as error:
            # Final for this instance, and for no other.
            print(f"error: {error}", file=sys.stderr, flush=True)


async def play(client: stickycas.Client, instance: str, given: argparse.Namespace) -> None:
    """Prints what the process decides."""
    decision = await client.propose(instance, given.value.encode(), unary=given.unary)
    print("decided", text(decision), flush=True)


async def find(client: stickycas.Client, name: str, last: str = "") -> str:
    """The id of the instance of this name, as soon as there is one and it is not the last one."""
    while True:
        try:
            instance_id = (await client.get(name)).instance.instance_id
            if instance_id != last:
                return instance_id
        except stickycas.Refused as refused:
            if refused.reason != "INSTANCE_UNKNOWN":
                raise
        await asyncio.sleep(LOOK_AGAIN)


async def create(client: stickycas.Client, given: argparse.Namespace) -> None:
    """Creates an instance, or finds the equal one of this name; prints its id."""
    created = await client.create(
        given.name,
        roster=given.roster.split(","),
        warp_size=given.warp_size,
        read_size=given.read_size,
        append_rounds=given.append_rounds,
        patience=given.patience,
    )
    print(created.instance_id)


async def watch(client: stickycas.Client, given: argparse.Namespace) -> None:
    """Prints entries and decisions until the instance ends."""
    instance = await find(client, given.instance) if given.wait else given.instance
    async for event in client.watch(instance):
        for line in lines(event):
            print(line, flush=True)


def lines(event: history_pb2.Event) -> list[str]:
    """What is printed of an event."""
    if event.HasField("added"):
        entry = event.added
        return [f"entry {entry.position} {entry.process} {text(entry.value)}"]
    if event.HasField("decided"):
        return [f"decided {event.decided.process} {text(event.decided.value)}"]
    return [end for end in ["finished", "closed"] if event.HasField(end)]


def text(value: bytes) -> str:
    """A value for people."""
    return value.decode(errors="backslashreplace")


async def main() -> int:
    """Returns the exit code."""
    given = arguments()
    scheme = "https" if given.credentials else "http"
    servers = [f"{scheme}://{server.rpartition('://')[2]}" for server in given.server.split(",")]
    logging.basicConfig(format="%(message)s")
    # The first process of a container has no default for it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        client = stickycas.Client(
            servers,
            credentials=given.credentials,
            principal=given.principal,
            give_up_after=given.give_up_after,
        )
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    async with client:
        try:
            await {"propose": propose, "create": create, "watch": watch}[given.command](client, given)
        except stickycas.StickyCasError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
