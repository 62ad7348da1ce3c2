"""Prints what the workers have done, as anybody sees it who may read the log, and who led them. Fails if a task has
no right answer, or if the leaders were not replaced as they should be."""

import json
import subprocess
import sys
from typing import Any

from primes import TASKS, Published


def main() -> None:
    done = 0
    leaders: dict[int, str] = {}
    arguments = ["stickycas-client", "log", "read", "work", "--follow", "--json"]
    print("slot  worker  epoch  task  answer")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as reading:
        assert reading.stdout
        for line in reading.stdout:
            entry = json.loads(line)
            published = Published.parse(entry["member"], entry["value"])
            if published is None:
                continue
            right = published.is_right()
            if right and published.task == done + 1:
                done += 1
                leaders[published.epoch] = f"process-{published.member}"
            numbers = f"{published.epoch:5}  {published.task:4}  {published.answer:6}"
            print(
                f"{entry['slot']:4}  {published.member:6}  {numbers}{'' if right else '  wrong'}", flush=True
            )
            if done == TASKS:
                break
        reading.terminate()
    current = leader()
    print(f"epoch {current['epoch']} is led by {current['leader']}")
    workers = list(leaders.values())
    print("answers by " + ", ".join(f"{worker} in epoch {epoch}" for epoch, worker in leaders.items()))
    if workers[:1] != ["process-1"] or workers[-1] in ("process-1", "process-2"):
        sys.exit("verdict: BROKEN: a leader was not replaced")
    if not any(leader(f"--epoch={epoch}")["leader"] == "process-2" for epoch in range(1, current["epoch"])):
        sys.exit("verdict: BROKEN: the worker that lies was never elected, so nothing was shown: start anew")
    print("verdict: VALID")


def leader(*flags: str) -> dict[str, Any]:
    command = ["stickycas-client", "elect", "leader", "captain", "--json", *flags]
    elected: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return elected


main()
