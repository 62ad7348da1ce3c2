"""A worker: checks what the leader publishes, and has a leader replaced that is silent or wrong.

    worker.py NUMBER [dies|lies]

The tasks: the numbers of primes below 1000, 2000, 3000, and so on. The leader of an epoch publishes one answer
after the other in the log `work`, as `EPOCH TASK ANSWER`. A worker believes nobody: it does each task itself.
When the leader's answer is wrong, or none comes, it supports the next worker in the election of the next
epoch. `dies`: is killed once, as the leader, and comes back. `lies`: supports itself, and publishes wrong answers.
"""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Any

from primes import TASKS, Published, primes_below

WORKERS = 5
# For so long, in seconds, a leader may be silent.
SILENCE = 3.0


class Worker:
    """One life of a worker."""

    def __init__(self, number: int, conduct: str) -> None:
        self.name, self.conduct = f"process-{number}", conduct
        self.next_task = 1
        self.said: set[tuple[int, int]] = set()
        self.published: asyncio.Queue[Published] = asyncio.Queue()
        self.appending: Process

    async def live(self) -> None:
        """Takes part until it is killed."""
        self.appending = await client("log", "append", "work", stdin=PIPE, stdout=DEVNULL)
        reading = await client("log", "read", "work", "--follow")
        read = asyncio.create_task(self.read(reading))
        elected = await outcome(await client("elect", "leader", "captain"))
        if elected["epoch"] == 0:
            elected = await outcome(await self.support(1, "process-1"))
        while following := await self.follow(elected["epoch"], elected["leader"]):
            elected = following
        print("killed", flush=True)
        read.cancel()
        for process in (self.appending, reading):
            process.kill()

    async def read(self, reading: Process) -> None:
        """Reads the log."""
        assert reading.stdout
        async for line in reading.stdout:
            entry = json.loads(line)
            if published := Published.parse(entry["member"], entry["value"]):
                self.published.put_nowait(published)

    async def support(self, epoch: int, whom: str | None, *flags: str) -> Process:
        """Supports a worker, or itself if it lies."""
        whom = self.name if self.conduct == "lies" or whom is None else whom
        return await client("elect", "support", "captain", whom, f"--epoch={epoch}", *flags)

    async def follow(self, epoch: int, leader: str | None) -> dict[str, Any] | None:
        """Checks this leader until there is another one, which it gives; None: it was killed."""
        print(f"epoch {epoch}: {leader} leads", flush=True)
        # If others begin the next epoch, a worker that has no reason to do so supports the leader again.
        content = await self.support(epoch + 1, leader, "--when-begun")
        other = asyncio.create_task(outcome(content))
        suspects = False
        while not suspects and not other.done():
            await self.publish(epoch, leader)
            published = asyncio.create_task(self.published.get())
            await asyncio.wait({published, other}, timeout=SILENCE, return_when=asyncio.FIRST_COMPLETED)
            if not published.done():
                published.cancel()
                suspects = self.next_task <= TASKS
            elif published.result().is_right():
                self.next_task += published.result().task == self.next_task
            else:
                by = f"process-{published.result().member}"
                suspects = by == leader and published.result().epoch == epoch
            if self.conduct == "dies" and leader == self.name and self.next_task > 2:
                content.kill()
                return None
        if other.done() or self.conduct == "lies":
            return await other
        print(f"suspects {leader}", flush=True)
        content.kill()
        await other
        return await outcome(await self.support(epoch + 1, f"process-{epoch % WORKERS + 1}"))

    async def publish(self, epoch: int, leader: str | None) -> None:
        """Publishes the next answer, if it is this worker's to do so."""
        lies, turn = self.conduct == "lies", (epoch, self.next_task)
        if self.next_task <= TASKS and (leader == self.name or lies) and turn not in self.said:
            self.said.add(turn)
            answer = primes_below(1000 * self.next_task) + lies
            assert self.appending.stdin
            self.appending.stdin.write(f"{epoch} {self.next_task} {answer}\n".encode())


async def client(*arguments: str, stdin: int = DEVNULL, stdout: int = PIPE) -> Process:
    """Starts the program of the client."""
    return await asyncio.create_subprocess_exec(
        "stickycas-client", *arguments, "--json", stdin=stdin, stdout=stdout
    )


async def outcome(process: Process) -> dict[str, Any]:
    """The outcome of an epoch that the program prints."""
    out, _ = await process.communicate()
    return json.loads(out) if out else {}


async def main() -> None:
    """Lives again after it was killed."""
    number, conduct = int(sys.argv[1]), "".join(sys.argv[2:])
    while True:
        await Worker(number, conduct).live()
        await asyncio.sleep(2 * SILENCE)
        conduct = ""


asyncio.run(main())
