#!/usr/bin/env python3
"""Lets feeders agree on a price at one server, for each tick and each number of Byzantine feeders.

    scripts/python examples/uses/price-feed/runs.py >examples/uses/price-feed/runs.csv

All is over the network, by the package for Python. A line of the result counts runs: `tick`, `byzantine`,
`distinct` (the number of different prices that the correct feeders of the run proposed), `runs`, and
`pushed`: in how many the Byzantine feeders' price was decided. Fails if correct feeders decide differently,
or if that price is decided where the theorem promises that it is not.

STICKYCAS_PROGRAMS: the folder of the server's program; target/debug, unless given.
"""

import asyncio
import csv
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from quote import quote

import stickycas

FEEDERS = 16
TICKS = [1, 2, 3, 5, 10, 20]
BYZANTINE = range(9)
RUNS = 40
# Sorts before every quote, and so wins every tie.
PUSHED = b"090.00"


async def run(clients: list[stickycas.Client], tick: int, byzantine: int, number: int) -> tuple[int, bool]:
    """One instance: the number of different prices of correct feeders, and whether the pushed one won."""
    quotes = [quote(feeder, tick, f"run-{number}").encode() for feeder in range(byzantine + 1, FEEDERS + 1)]
    roster = [f"feeder-{feeder}" for feeder in range(1, FEEDERS + 1)]
    instance = (await clients[0].create(roster=roster)).instance_id
    values = [PUSHED] * byzantine + quotes
    # A Byzantine feeder differs from a correct one in its value alone.
    decisions = await asyncio.gather(
        *(client.propose(instance, value) for client, value in zip(clients, values))
    )
    decided = set(decisions[byzantine:])
    what = f"tick {tick}, {byzantine} Byzantine, run {number}: {sorted(decided)}"
    if len(decided) != 1:
        sys.exit(f"no agreement: {what}")
    distinct = len(set(quotes))
    pushed = decided == {PUSHED}
    if pushed and byzantine * (distinct + 1) < FEEDERS:
        sys.exit(f"against the theorem: {what}")
    return distinct, pushed


async def measure(server: str) -> None:
    """Writes the table."""
    clients = [stickycas.Client(server, principal=f"feeder-{feeder}") for feeder in range(1, FEEDERS + 1)]
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["tick", "byzantine", "distinct", "runs", "pushed"])
    for tick in TICKS:
        for byzantine in BYZANTINE:
            results = [await run(clients, tick, byzantine, number) for number in range(RUNS)]
            runs = Counter(distinct for distinct, _ in results)
            pushed = Counter(distinct for distinct, is_pushed in results if is_pushed)
            table.writerows(
                [tick, byzantine, distinct, runs[distinct], pushed[distinct]] for distinct in sorted(runs)
            )
    for client in clients:
        await client.close()


def main() -> None:
    root = Path(__file__).resolve().parents[3]
    program = Path(os.environ.get("STICKYCAS_PROGRAMS", root / "target/debug")) / "stickycas-server"
    flags = (
        "--in-memory --insecure-principals --coordinator=feeder-1 --listen=127.0.0.1:0 --no-http --log=error"
    )
    with subprocess.Popen([program, "serve", *flags.split()], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            # It prints where it listens.
            asyncio.run(measure("http://" + server.stdout.readline().split()[-1].removeprefix("http://")))
        finally:
            server.terminate()


main()
