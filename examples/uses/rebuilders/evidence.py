"""Prints who published which digest, from the list of the instance, once it has ended."""

import asyncio
import os
from collections import Counter, defaultdict

import stickycas


async def exists(client: stickycas.Client, instance: str) -> None:
    """Returns when there is an instance of this name."""
    while True:
        try:
            await client.get(instance)
            return
        except stickycas.Refused as refused:
            if refused.reason != "INSTANCE_UNKNOWN":
                raise
        await asyncio.sleep(0.1)


async def main() -> None:
    published: list[tuple[int, str]] = []
    decided: defaultdict[str, list[int]] = defaultdict(list)
    refused: Counter[int] = Counter()
    instance = os.environ["STICKYCAS_INSTANCE"]
    credentials = os.environ["STICKYCAS_CLIENT_CREDENTIALS"]
    async with stickycas.Client(os.environ["STICKYCAS_SERVER"], credentials=credentials) as client:
        await exists(client, instance)
        async for event in client.watch(instance):
            if event.HasField("added"):
                published.append((event.added.process, event.added.value.decode()))
            elif event.HasField("decided"):
                decided[event.decided.value.decode()].append(event.decided.process)
            elif event.HasField("offence"):
                refused[event.offence.process] += 1
    print("position  builder  digest")
    for position, (builder, digest) in enumerate(published):
        print(f"{position:8}  {builder:7}  {digest}")
    for digest, builders in decided.items():
        print(f"decided by {', '.join(map(str, sorted(builders)))}: {digest}")
    count = Counter(digest for _, digest in published)
    for builder, digest in published:
        if count[digest] == 1:
            print(f"builder {builder} stands alone with {digest}")
    for builder, times in refused.items():
        print(f"offences of builder {builder} on record: {times}")


asyncio.run(main())
