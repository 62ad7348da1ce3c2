#!/usr/bin/env python3
"""A strategy of one's own, and what becomes of it: strategy.py [URL]

Makes an instance of four processes at a server that believes names, in which the principal `alice` may create
instances. Three processes are correct and propose tea. The fourth one lies: it decides what the fewest have proposed.
"""

import asyncio
import sys

import stickycas
from stickycas.v1 import instance_pb2


async def liar(process: stickycas.Process) -> bytes:
    """Appends what nobody wants, reads the whole list, and decides against it."""
    await process.append(b"gin")
    values = await process.read_all()
    rarest = min(values, key=values.count)
    await process.decide(rarest)
    return rarest


async def main() -> None:
    """Plays all four, and prints what they decide and what is on record."""
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7420"
    names = ["ann", "bob", "cid", "eve"]
    alice, *clients = (stickycas.Client(url, principal=name) for name in ["alice", *names])
    instance = (await alice.create(roster=names, patience=60)).instance_id
    correct = [client.propose(instance, b"tea") for client in clients[:3]]
    decisions = await asyncio.gather(*correct, clients[3].play(instance, liar))
    for name, decision in zip(names, decisions):
        print(name, "decides", decision.decode())
    for offence in (await alice.get(instance)).status.offences:
        kind = instance_pb2.OffenceKind.Name(offence.kind).removeprefix("OFFENCE_KIND_")
        print("on record:", names[offence.process - 1], kind)
    await asyncio.gather(*(client.close() for client in [alice, *clients]))


if __name__ == "__main__":
    asyncio.run(main())
