#!/usr/bin/env python3
"""Plays one correct process of a StickyCAS instance: Algorithm 1 of the paper over unary calls.

Exit code: 0 decided, 1 no decision, 2 wrong usage or no credentials. See README.md for what has to be generated first.
"""

import argparse
import json
import random
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
from cluster import MAX_REDIRECTS, Cluster
from google.rpc import error_details_pb2
from grpc_status import rpc_status

sys.path.insert(0, str(Path(__file__).parent / "generated"))

from stickycas.v1 import instance_pb2, instance_service_pb2, instance_service_pb2_grpc  # noqa: E402
from stickycas.v1 import sticky_cas_service_pb2, sticky_cas_service_pb2_grpc  # noqa: E402

# After these the very same request is made again. That is safe whether it was executed or not: an access carries its
# number, so the same request attaches to the waiting access, or is told the first answer.
ASK_AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
# Reasons with these codes by which a request did not happen. With any other reason, such as LOG_FAILED or DRAINING, and
# without one, when the connection broke, nobody can say.
DID_NOT_HAPPEN = {"RECOVERING", "RATE_EXCEEDED", "NOT_OWNER"}
# The server is there, and will serve: it is not out of reach, however long that takes.
WILL_SERVE = {"DEADLINE", "RECOVERING"}

# How long one call may wait for its phase before it is asked again, in seconds.
CALL_TIMEOUT = 10.0
# How long a server may be out of reach, in seconds; with --again, without end.
GIVE_UP_AFTER = 30.0
# Between two tries, or two looks for an instance, in seconds.
BACK_OFF = 0.2
# A server that was killed is reached again soon after it is back; grpc would wait for up to two minutes.
CHANNEL_OPTIONS = [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 1000)]


class NoDecision(Exception):
    """The process cannot decide."""


def refusal(error):
    """Why the server refused a call, after how many seconds it may be made again, and who is the owner, as far as it says so."""
    reason, delay, owner = None, BACK_OFF, None
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            reason = info.reason
            address, epoch = info.metadata.get("owner"), info.metadata.get("epoch", "")
            owner = (address, int(epoch)) if address and epoch.isdecimal() else None
        elif detail.Unpack(retry):
            delay = max(delay, retry.retry_delay.ToTimedelta().total_seconds())
    return reason, delay, owner


LIST = sticky_cas_service_pb2_grpc.StickyCasServiceStub
INSTANCES = instance_service_pb2_grpc.InstanceServiceStub


class Caller:
    """Makes the calls of one principal, again if need be, each at the owner of its instance."""

    def __init__(self, cluster, principal, give_up_after, verbose):
        self.cluster = cluster
        self.metadata = [("stickycas-principal", principal)]
        self.give_up_after = give_up_after
        self.verbose = verbose

    def call(self, service, method, request):
        """The response; the same request is made until it comes or is refused for good."""
        reached = time.monotonic()
        redirects = 0
        instance_id = request.instance_id
        while True:
            server = self.cluster.server(instance_id)
            try:
                asked = getattr(service(self.cluster.channel(server)), method)
                return asked(request, metadata=self.metadata, timeout=CALL_TIMEOUT)
            except grpc.RpcError as error:
                if error.code() not in ASK_AGAIN:
                    raise
                reason, delay, owner = refusal(error)
                if self.verbose:
                    happened = "it did not happen" if reason in DID_NOT_HAPPEN else "it may have happened"
                    print(f"asks again: {error.code().name}, {reason}: {happened}", file=sys.stderr, flush=True)
                if error.code() == grpc.StatusCode.UNAVAILABLE:
                    self.cluster.failed(instance_id, server)
                follows = owner is not None and owner[0] != server and redirects < MAX_REDIRECTS
                if follows and self.cluster.told(instance_id, *owner):
                    redirects += 1
                    continue
                if reason in WILL_SERVE or error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    reached = time.monotonic()
                elif time.monotonic() - reached > self.give_up_after:
                    raise
                # Not all at the same moment.
                time.sleep(delay * random.uniform(1, 1.5))
                redirects = 0


def mode(values):
    """The most frequent value; of those that are equally frequent, the smallest as unsigned bytes (D1)."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value), default=None)


def play(caller, instance, proposal):
    """Appends, reads until the list is complete, and returns what it decides (Algorithm 1)."""
    instance_id, parameters = instance.instance_id, instance.parameters
    warps = -(-parameters.processes // parameters.warp_size)

    # Whatever the answer is: who loses the phase reads the winner's value (lines 1 to 3).
    append = sticky_cas_service_pb2.AppendRequest(instance_id=instance_id, access_number=1, value=proposal)
    caller.call(LIST, "Append", append)

    # Each read takes up to r entries, from the number of those held (lines 4 to 8).
    held, number, complete = [], 1, False
    while not complete:
        number += 1
        read = sticky_cas_service_pb2.ReadRequest(instance_id=instance_id, access_number=number, start=len(held))
        result = caller.call(LIST, "Read", read).result
        held.extend(result.values)
        complete = len(held) >= warps or (result.sealed and len(held) == result.length)

    decision = mode(held)
    if decision is None:
        raise NoDecision("the list is sealed and empty: no correct process was in time")
    # Tells the others that this process has left, so that no phase waits for it.
    caller.call(LIST, "Decide", sticky_cas_service_pb2.DecideRequest(instance_id=instance_id, value=decision))
    return decision


def find(caller, text):
    """The instance with this id or name, as it stands and where this principal stands there."""
    by_id = re.fullmatch("[0-9a-f]{32}", text)
    request = instance_service_pb2.GetRequest(**{"instance_id" if by_id else "name": text})
    return caller.call(INSTANCES, "Get", request)


def begin(found):
    """The instance, if this principal can begin there."""
    if not found.HasField("own"):
        raise NoDecision("this principal is no process of the instance")
    if found.own.next_access_number != 1 or found.own.HasField("decided"):
        raise NoDecision("this process has begun already, and the script cannot go on where it left off")
    if found.instance.parameters.append_window != instance_pb2.APPEND_WINDOW_FIRST_ACCESS:
        raise NoDecision("the script plays only where the append window is first_access")
    return found.instance


def instances(caller, name):
    """Every instance that has this name, one after another, without end."""
    last = None
    while True:
        try:
            found = find(caller, name)
            if found.instance.instance_id != last:
                last = found.instance.instance_id
                yield found
                continue
        except grpc.RpcError as error:
            # Not created yet.
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise
        time.sleep(BACK_OFF)


def tell(arguments, decision):
    """Prints a decision."""
    text = decision.decode(errors="backslashreplace")
    told = json.dumps({"principal": arguments.principal, "decision": text}) if arguments.json else text
    print(told, flush=True)


def play_all(caller, arguments):
    """Plays one instance of the name after another. Ends with the program."""
    for found in instances(caller, arguments.instance):
        try:
            tell(arguments, play(caller, begin(found), arguments.value.encode()))
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
        open_channel = partial(channel.open_channel, credentials=arguments.credentials, options=CHANNEL_OPTIONS)
        with closing(Cluster(arguments.server.split(","), open_channel)) as servers:
            give_up_after = float("inf") if arguments.again else GIVE_UP_AFTER
            caller = Caller(servers, arguments.principal, give_up_after, arguments.verbose)
            if arguments.again:
                play_all(caller, arguments)
            else:
                tell(arguments, play(caller, begin(find(caller, arguments.instance)), arguments.value.encode()))
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
