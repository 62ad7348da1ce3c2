#!/usr/bin/env python3
"""Lists the StickyCAS instances that a principal may see: those of all servers of a cluster.

Exit code: 0 all servers have answered, 1 one has not.
"""

import argparse
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import channel
import grpc
from cluster import ANSWER_TIMEOUT, Cluster, Route

sys.path.insert(0, str(Path(__file__).parent / "generated"))

from stickycas.v1 import instance_pb2, instance_service_pb2, instance_service_pb2_grpc  # noqa: E402

# How long a server may be out of reach, in seconds.
GIVE_UP_AFTER = 30.0


def instances_of(cluster, server):
    """The instances of one server, page by page, the shards that all pages are of, and the last page. A page token is of use there alone."""
    service = instance_service_pb2_grpc.InstanceServiceStub(cluster.channel(server))
    instances, shards, token = [], None, ""
    while True:
        request = instance_service_pb2.ListRequest(page_token=token)
        page = service.List(request, metadata=cluster.metadata, timeout=ANSWER_TIMEOUT)
        instances += page.instances
        listed = set(page.listed_shards)
        shards = listed if shards is None else shards & listed
        token = page.next_page_token
        if not token:
            return instances, shards, page


def all_instances(cluster):
    """The instances of all servers, in the order of their ids, and how many shards no server tells of: their instances may be missing."""
    route = Route(cluster)
    while True:
        try:
            found, told, last = instances_of(cluster, route.server)
            for other in last.other_servers:
                if not cluster.may_ask(other):
                    raise OSError(f"no server that was given names {other}")
                more, shards, _ = instances_of(cluster, other)
                found += more
                told |= shards
            break
        except grpc.RpcError as error:
            # By the next time others may own the instances of a server that does not answer.
            route.next_try(error)
    # Of one that came twice the later state counts: no state comes again.
    latest = {instance.instance_id: instance for instance in sorted(found, key=lambda instance: instance.state)}
    return [latest[instance_id] for instance_id in sorted(latest)], max(0, last.shards - len(told))


def main():
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description="List the StickyCAS instances of all servers.")
    parser.add_argument("--server", default="127.0.0.1:7420", metavar="HOST:PORT", help="the server, or its URL; several, with commas")
    channel.add_arguments(parser)
    parser.add_argument("--principal", default="observer", metavar="NAME")
    arguments = parser.parse_args()

    try:
        open_channel = partial(channel.open_channel, credentials=arguments.credentials)
        with closing(Cluster(arguments.server.split(","), open_channel, arguments.principal, GIVE_UP_AFTER)) as cluster:
            found, left_out = all_instances(cluster)
            for instance in found:
                state = instance_pb2.State.Name(instance.state).removeprefix("STATE_").lower()
                print(instance.instance_id, state, instance.name)
            if left_out:
                print(f"warning: instances may be missing: no server serves {left_out} shards at the moment", file=sys.stderr)
    except OSError as why:
        print(f"error: {why}", file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"error: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
