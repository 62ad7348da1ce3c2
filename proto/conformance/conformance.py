#!/usr/bin/env python3
"""Says whether a server, or a client, keeps the rules of stickycas.v1. README.md says how."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from wire import Server

import client
import server


async def report(results: AsyncIterator[tuple[str, dict[str, Any], str | None]]) -> int:
    """Prints a line for each script as it ends, and the sum on standard error."""
    passed = failed = 0
    async for name, script, wrong in results:
        if wrong is None:
            passed += 1
            print(f"ok {name}", flush=True)
        else:
            failed += 1
            print(f"FAILED {name}: {wrong}\n  {script['rule']}: {script['says']}", flush=True)
    print(f"{passed} passed, {failed} failed", file=sys.stderr)
    return 1 if failed or not passed else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="PREFIX", help="scripts with such names alone"
    )
    parser.add_argument("--timeout", type=float, default=10, metavar="SECONDS", help="for each step (10)")
    parser.add_argument("--jobs", type=int, metavar="N", help="scripts at a time (a server 32, a client 4)")
    what = parser.add_subparsers(dest="what", required=True)
    of_server = what.add_parser("server", help="judge a server")
    of_server.add_argument("--server", required=True, metavar="HOST:PORT")
    of_server.add_argument("--credentials", type=Path, metavar="DIR", help="a folder for each principal; TLS")
    of_client = what.add_parser("client", help="judge a client")
    of_client.add_argument("--transport", choices=["attach", "unary"], help="this one alone")
    of_client.add_argument("command", nargs="+", help="the client's command line, after --")
    args = parser.parse_args()
    if args.what == "server":
        tested = Server(args.server, args.credentials)
        return asyncio.run(report(server.judge(tested, args.only, args.timeout, args.jobs or 32)))
    transports = [args.transport] if args.transport else ["attach", "unary"]
    play = client.program(args.command, args.timeout)
    return asyncio.run(report(client.judge(play, args.only, transports, args.jobs or 4)))


if __name__ == "__main__":
    sys.exit(main())
