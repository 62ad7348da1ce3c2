#!/usr/bin/env python3
"""An adversary of one's own, as process 3 of external.toml: docs/use/an-adversary-of-your-own.md. adversary.py [URL]"""

import asyncio
import sys

import stickycas


async def late(process: stickycas.Process) -> bytes:
    """Reads where it should append, and appends when processes 1 and 2 have read the list to its end."""
    await process.read()
    appended = await process.append(b"b")
    print("append:", appended.outcome, "at", appended.position)
    return b"b"


async def main() -> None:
    """Plays it once."""
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7420"
    async with stickycas.Client(url, principal="process-3") as client:
        await client.play("demo", late)


if __name__ == "__main__":
    asyncio.run(main())
