#!/usr/bin/env python3
"""Tests that the example finds the owner of an instance: scripts/python examples/python/cluster_test.py."""

import sys
import unittest
from concurrent import futures
from contextlib import closing

import channel
import grpc
import process
from cluster import MAX_REDIRECTS, Cluster
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from stickycas.v1 import access_pb2, instance_pb2, sticky_cas_service_pb2, sticky_cas_service_pb2_grpc

INSTANCE = "0" * 31 + "1"


class Scripted(sticky_cas_service_pb2_grpc.StickyCasServiceServicer):
    """A server on a free port that owns nothing, or everything."""

    def __init__(self):
        self.asked, self.refusals = [], []
        self.always = None
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        sticky_cas_service_pb2_grpc.add_StickyCasServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def refuse(self, reason, owner=None, epoch=0):
        """Refuses the next call."""
        self.refusals.append(refusal(reason, owner, epoch))

    def answer(self, what, context):
        """Notes the call; refuses it, if that is due."""
        self.asked.append(what)
        refused = self.refusals.pop(0) if self.refusals else self.always
        if refused:
            context.abort_with_status(rpc_status.to_status(refused))

    def Append(self, request, context):
        self.answer(f"append {request.access_number}", context)
        return sticky_cas_service_pb2.AppendResponse(phase=1, result=access_pb2.AppendResult(outcome=1, position=0))

    def Read(self, request, context):
        self.answer(f"read {request.access_number}", context)
        result = access_pb2.ReadResult(values=[b"x"], length=1)
        return sticky_cas_service_pb2.ReadResponse(phase=2, result=result)

    def Decide(self, request, context):
        self.answer(f"decide {request.value.decode()}", context)
        return sticky_cas_service_pb2.DecideResponse()


def refusal(reason, owner=None, epoch=0):
    """A refusal as servers make it."""
    metadata = {"owner": owner, "epoch": str(epoch)} if owner else {}
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(domain="stickycas.v1", reason=reason, metadata=metadata))
    return status_pb2.Status(code=code_pb2.UNAVAILABLE, message="not here", details=[detail])


class AmongServers(unittest.TestCase):
    def setUp(self):
        self.servers = [Scripted() for _ in range(3)]
        self.addCleanup(lambda: [server.server.stop(None) for server in self.servers])
        process.BACK_OFF = 0.001

    def play(self, give_up_after=60):
        parameters = instance_pb2.Parameters(processes=1, warp_size=1, read_size=1)
        instance = instance_pb2.Instance(instance_id=INSTANCE, parameters=parameters)
        addresses = [server.address for server in self.servers]
        with closing(Cluster(addresses, lambda address: channel.open_channel(address, None))) as cluster:
            caller = process.Caller(cluster, "p1", give_up_after, False)
            return process.play(caller, instance, b"x")

    def test_the_owner_is_asked_and_remembered(self):
        one, two, _ = self.servers
        one.refuse("NOT_OWNER", two.address, 5)
        self.assertEqual(self.play(), b"x")
        self.assertEqual(one.asked, ["append 1"])
        self.assertEqual(two.asked, ["append 1", "read 2", "decide x"])

    def test_an_access_whose_owner_was_deposed_is_asked_with_the_same_number(self):
        one, two, three = self.servers
        one.refuse("NOT_OWNER", two.address, 5)
        two.refuse("OWNER_LOST", three.address, 6)
        self.assertEqual(self.play(), b"x")
        self.assertEqual([one.asked, two.asked], [["append 1"], ["append 1"]])
        self.assertEqual(three.asked, ["append 1", "read 2", "decide x"])

    def test_without_an_owner_the_next_server_is_asked(self):
        one, two, _ = self.servers
        one.refuse("NOT_OWNER")
        self.assertEqual(self.play(), b"x")
        self.assertEqual(two.asked, ["append 1", "read 2", "decide x"])

    def test_a_dead_server_is_passed_over(self):
        one, two, _ = self.servers
        one.server.stop(None).wait()
        self.assertEqual(self.play(), b"x")
        self.assertEqual(two.asked, ["append 1", "read 2", "decide x"])

    def test_redirects_are_bounded_and_only_to_given_servers(self):
        one, two, _ = self.servers
        one.always = refusal("NOT_OWNER", two.address, 5)
        two.always = refusal("NOT_OWNER", one.address, 5)
        with self.assertRaises(grpc.RpcError):
            self.play(give_up_after=-1)
        self.assertEqual(len(one.asked) + len(two.asked), 1 + MAX_REDIRECTS)
        stranger = Scripted()
        self.addCleanup(lambda: stranger.server.stop(None))
        for server in self.servers:
            server.always = refusal("NOT_OWNER", stranger.address, 9)
        with self.assertRaises(grpc.RpcError):
            self.play(give_up_after=-1)
        self.assertEqual(stranger.asked, [])

    def test_an_older_epoch_is_ignored(self):
        cluster = Cluster(["a:1", "http://b:1"], None)
        self.assertTrue(cluster.told(INSTANCE, "b:1", 5))
        self.assertFalse(cluster.told(INSTANCE, "a:1", 4))
        self.assertEqual(cluster.server(INSTANCE), "b:1")
        cluster.failed(INSTANCE, "b:1")
        self.assertEqual(cluster.server(INSTANCE), "a:1")
        self.assertFalse(cluster.told(INSTANCE, "a:1", 4))
        self.assertTrue(cluster.told(INSTANCE, "a:1", 6))


if __name__ == "__main__":
    sys.exit(unittest.main())
