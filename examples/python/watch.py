#!/usr/bin/env python3
"""Watches a StickyCAS instance from its first event to its end.

Prints every entry as it is added, every offence and every decision, and last what was decided. The principal must be an
observer, the creator or a member. Exit code: 0 the instance came to its end, 1 it could not be watched so far.
"""

import argparse
import sys
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

import channel
import grpc
from cluster import Cluster, Route

sys.path.insert(0, str(Path(__file__).parent / "generated"))

from stickycas.v1 import instance_pb2, instance_service_pb2, instance_service_pb2_grpc  # noqa: E402

# Between two looks for an instance that is not there yet, in seconds.
LOOK_AGAIN = 0.2
# How long a server may be out of reach, in seconds.
GIVE_UP_AFTER = 30.0


INSTANCES = instance_service_pb2_grpc.InstanceServiceStub


class Lost(Exception):
    """A server tells less than one has told before, or something else."""


def find(cluster, name, wait):
    """The id of the living instance of this name, which may have to be waited for, in seconds."""
    end = time.monotonic() + wait
    while True:
        try:
            return cluster.call(INSTANCES, "Get", instance_service_pb2.GetRequest(name=name)).instance.instance_id
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND or time.monotonic() > end:
                raise
        time.sleep(LOOK_AGAIN)


def words(event):
    """An event for people; None for those that only programs follow."""
    what = event.WhichOneof("what")
    about = getattr(event, what)
    match what:
        case "gathering_ended":
            return f"{about.joined} processes have joined"
        case "added":
            return f"phase {about.phase}: process {about.process} appends {about.value.decode(errors='replace')}"
        case "sealed":
            return f"phase {about.phase}: the list is sealed with {about.length} entries"
        case "offence":
            kind = instance_pb2.OffenceKind.Name(about.kind).removeprefix("OFFENCE_KIND_").lower()
            return f"process {about.process} is blamed for {kind}: {about.detail}"
        case "decided":
            return f"process {about.process} decides {about.value.decode(errors='replace')}"
        case "finished" | "closed":
            return what
    return None


def events(cluster, instance_id):
    """Every event, once and in order, also when the instance moves to another server."""
    request = instance_service_pb2.WatchRequest(instance_id=instance_id)
    route = Route(cluster, instance_id)
    given, last = 0, None
    while True:
        # A server is asked for all that it keeps, and the last event that was given shows whether it is the same history.
        is_same = last is None
        try:
            for response in INSTANCES(route.channel()).Watch(request, metadata=cluster.metadata):
                route.note_answer()
                for event in response.events.events:
                    if event.index == given - 1:
                        is_same = event == last
                    if event.index >= given - 1 and not is_same:
                        raise Lost(f"event {event.index} is another one than before, or those before it are not kept")
                    if event.index > given:
                        raise Lost(f"event {event.index} came where {given} was due")
                    if event.index == given:
                        given, last = given + 1, event
                        yield event
            if not is_same:
                raise Lost(f"{given} events were told, and now it is over with fewer")
            return
        except grpc.RpcError as error:
            route.next_try(error)


def watch(cluster, instance_id):
    """Prints what happens, and returns how many processes decided what."""
    decisions = Counter()
    for event in events(cluster, instance_id):
        if event.WhichOneof("what") == "decided":
            decisions[event.decided.value.decode(errors="replace")] += 1
        if line := words(event):
            print(line, flush=True)
    return decisions


def main():
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description="Watch a StickyCAS instance to its end.")
    parser.add_argument("--server", default="127.0.0.1:7420", metavar="HOST:PORT", help="the server, or its URL; of a cluster: several, with commas")
    channel.add_arguments(parser)
    parser.add_argument("--instance", default="demo", metavar="NAME")
    parser.add_argument("--principal", default="observer", metavar="NAME")
    parser.add_argument("--wait", type=float, default=0, metavar="SECONDS", help="for the instance to be created")
    arguments = parser.parse_args()

    try:
        open_channel = partial(channel.open_channel, credentials=arguments.credentials)
        give_up_after = max(arguments.wait, GIVE_UP_AFTER)
        with closing(Cluster(arguments.server.split(","), open_channel, arguments.principal, give_up_after)) as cluster:
            decisions = watch(cluster, find(cluster, arguments.instance, arguments.wait))
    except (OSError, Lost) as why:
        print(f"error: {why}", file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"error: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    for value, count in decisions.most_common():
        print(f"{count} processes decided {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
