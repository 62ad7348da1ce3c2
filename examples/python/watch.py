#!/usr/bin/env python3
"""Watches a StickyCAS instance from its first event to its end.

Prints every entry as it is added, every offence and every decision, and last what was decided. The principal must be an
observer, the creator or a member. Exit code: 0 the instance came to its end, 1 it could not be watched so far.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import channel
import grpc

sys.path.insert(0, str(Path(__file__).parent / "generated"))

from stickycas.v1 import instance_pb2, instance_service_pb2, instance_service_pb2_grpc  # noqa: E402

# Between two looks for an instance that is not there yet, in seconds.
LOOK_AGAIN = 0.2


def find(instances, metadata, name, wait):
    """The id of the living instance of this name, which may have to be waited for, in seconds."""
    end = time.monotonic() + wait
    while True:
        try:
            request = instance_service_pb2.GetRequest(name=name)
            return instances.Get(request, metadata=metadata).instance.instance_id
        except grpc.RpcError as error:
            absent = error.code() in {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE}
            if not absent or time.monotonic() > end:
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


def watch(instances, metadata, instance_id):
    """Prints what happens, and returns how many processes decided what."""
    decisions, expected = Counter(), 0
    request = instance_service_pb2.WatchRequest(instance_id=instance_id)
    for response in instances.Watch(request, metadata=metadata):
        for event in response.events.events:
            # Numbers without gaps: nothing was missed.
            assert event.index == expected, f"event {event.index} came where {expected} was due"
            expected += 1
            if event.WhichOneof("what") == "decided":
                decisions[event.decided.value.decode(errors="replace")] += 1
            if line := words(event):
                print(line, flush=True)
    return decisions


def main():
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description="Watch a StickyCAS instance to its end.")
    parser.add_argument("--server", default="127.0.0.1:7420", metavar="HOST:PORT", help="or its URL")
    channel.add_arguments(parser)
    parser.add_argument("--instance", default="demo", metavar="NAME")
    parser.add_argument("--principal", default="observer", metavar="NAME")
    parser.add_argument("--wait", type=float, default=0, metavar="SECONDS", help="for the instance to be created")
    arguments = parser.parse_args()

    metadata = [("stickycas-principal", arguments.principal)]
    try:
        with channel.open_channel(arguments.server, arguments.credentials) as opened:
            instances = instance_service_pb2_grpc.InstanceServiceStub(opened)
            instance_id = find(instances, metadata, arguments.instance, arguments.wait)
            decisions = watch(instances, metadata, instance_id)
    except OSError as why:
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
