#!/usr/bin/env python3
"""Plays one correct process of a StickyCAS instance: Algorithm 1 of the paper over unary calls.

Exit code: 0 decided, 1 no decision, 2 wrong usage or no credentials. See README.md for what has to be generated first.
"""

import argparse
import json
import re
import signal
import sys
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

import channel
import grpc
from cluster import Cluster

sys.path.insert(0, str(Path(__file__).parent / "generated"))

from stickycas.v1 import instance_pb2, instance_service_pb2, instance_service_pb2_grpc  # noqa: E402
from stickycas.v1 import sticky_cas_service_pb2, sticky_cas_service_pb2_grpc  # noqa: E402

# How long a server may be out of reach, in seconds; with --again, without end.
GIVE_UP_AFTER = 30.0
# Between two looks for an instance, in seconds.
LOOK_AGAIN = 0.2

LIST = sticky_cas_service_pb2_grpc.StickyCasServiceStub
INSTANCES = instance_service_pb2_grpc.InstanceServiceStub


class NoDecision(Exception):
    """The process cannot decide."""


def mode(values):
    """The most frequent value; of those that are equally frequent, the smallest as unsigned bytes (D1)."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value), default=None)


def play(cluster, instance, proposal):
    """Appends, reads until the list is complete, and returns what it decides (Algorithm 1)."""
    instance_id, parameters = instance.instance_id, instance.parameters
    warps = -(-parameters.processes // parameters.warp_size)

    # Whatever the answer is: who loses the phase reads the winner's value (lines 1 to 3).
    append = sticky_cas_service_pb2.AppendRequest(instance_id=instance_id, access_number=1, value=proposal)
    appended = cluster.call(LIST, "Append", append, instance_id).result

    # Each read takes up to r entries, from the number of those held (lines 4 to 8).
    held, number, length, sealed, complete = [], 1, 0, False, False
    while not complete:
        number += 1
        read = sticky_cas_service_pb2.ReadRequest(instance_id=instance_id, access_number=number, start=len(held))
        result = cluster.call(LIST, "Read", read, instance_id).result
        # The list only grows, and not when it is sealed, whichever server answers (A3, R2).
        if result.length < length or (sealed and (not result.sealed or result.length > length)):
            raise NoDecision("lost: the list is not the one that a server has told before")
        length, sealed = result.length, result.sealed
        held.extend(result.values)
        complete = len(held) >= warps or (sealed and len(held) == length)
    if appended.HasField("position") and held[appended.position : appended.position + 1] != [proposal]:
        raise NoDecision("lost: the value of this process does not stand where a server has told before")

    decision = mode(held)
    if decision is None:
        raise NoDecision("the list is sealed and empty: no correct process was in time")
    # Tells the others that this process has left, so that no phase waits for it.
    decide = sticky_cas_service_pb2.DecideRequest(instance_id=instance_id, value=decision)
    cluster.call(LIST, "Decide", decide, instance_id)
    return decision


def find(cluster, text):
    """The instance with this id or name, as it stands and where this principal stands there."""
    by_id = re.fullmatch("[0-9a-f]{32}", text)
    request = instance_service_pb2.GetRequest(**{"instance_id" if by_id else "name": text})
    return cluster.call(INSTANCES, "Get", request, request.instance_id)


def begin(found):
    """The instance, if this principal can begin there."""
    if not found.HasField("own"):
        raise NoDecision("this principal is no process of the instance")
    if found.own.next_access_number != 1 or found.own.HasField("decided"):
        raise NoDecision("this process has begun already, and the script cannot go on where it left off")
    if found.instance.parameters.append_window != instance_pb2.APPEND_WINDOW_FIRST_ACCESS:
        raise NoDecision("the script plays only where the append window is first_access")
    return found.instance


def instances(cluster, name):
    """Every instance that has this name, one after another, without end."""
    last = None
    while True:
        try:
            found = find(cluster, name)
            if found.instance.instance_id != last:
                last = found.instance.instance_id
                yield found
                continue
        except grpc.RpcError as error:
            # Not created yet.
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise
        time.sleep(LOOK_AGAIN)


def tell(arguments, decision):
    """Prints a decision."""
    text = decision.decode(errors="backslashreplace")
    told = json.dumps({"principal": arguments.principal, "decision": text}) if arguments.json else text
    print(told, flush=True)


def play_all(cluster, arguments):
    """Plays one instance of the name after another. Ends with the program."""
    for found in instances(cluster, arguments.instance):
        try:
            tell(arguments, play(cluster, begin(found), arguments.value.encode()))
        except NoDecision as why:
            print(f"no decision: {why}", file=sys.stderr, flush=True)
        except grpc.RpcError as error:
            # Closed, or lost with the server's memory: final for this instance, and for no other.
            print(f"no decision: {error.code().name}: {error.details()}", file=sys.stderr, flush=True)


def main():
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description="Play one correct process of a StickyCAS instance.")
    parser.add_argument("--server", required=True, metavar="HOST:PORT", help="the server, or its URL; of a cluster: several, with commas")
    channel.add_arguments(parser)
    parser.add_argument("--instance", required=True, metavar="ID|NAME")
    parser.add_argument("--principal", required=True, metavar="NAME", help="who this process is on the roster")
    parser.add_argument("--value", required=True, metavar="TEXT", help="what it proposes")
    parser.add_argument("--again", action="store_true", help="wait for the instance, play it and the next of its name")
    parser.add_argument("--json", action="store_true", help="print a line of JSON instead of the decision alone")
    parser.add_argument("--verbose", action="store_true", help="tell on standard error when a call is made again")
    arguments = parser.parse_args()
    # The first process of a container has no default for it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    try:
        open_channel = partial(channel.open_channel, credentials=arguments.credentials)
        give_up_after = float("inf") if arguments.again else GIVE_UP_AFTER
        servers = arguments.server.split(",")
        with closing(Cluster(servers, open_channel, arguments.principal, give_up_after, arguments.verbose)) as cluster:
            if arguments.again:
                play_all(cluster, arguments)
            else:
                tell(arguments, play(cluster, begin(find(cluster, arguments.instance)), arguments.value.encode()))
    except OSError as why:
        print(f"error: {why}", file=sys.stderr)
        return 2
    except NoDecision as why:
        print(f"error: {why}", file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"error: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
