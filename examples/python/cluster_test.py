#!/usr/bin/env python3
"""Tests that the example finds the owner of an instance: scripts/python examples/python/cluster_test.py."""

import socket
import sys
import threading
import unittest
from concurrent import futures
from contextlib import closing
from functools import partial
from unittest import mock

import channel
import cluster
import grpc
import instances
import process
import watch
from cluster import MAX_REDIRECTS, Cluster
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from stickycas.v1 import access_pb2, history_pb2, instance_pb2, instance_service_pb2, instance_service_pb2_grpc
from stickycas.v1 import server_service_pb2, server_service_pb2_grpc, sticky_cas_service_pb2, sticky_cas_service_pb2_grpc

INSTANCE = "0" * 31 + "1"


class Scripted(
    sticky_cas_service_pb2_grpc.StickyCasServiceServicer,
    instance_service_pb2_grpc.InstanceServiceServicer,
    server_service_pb2_grpc.ServerServiceServicer,
):
    """A server on a free port that owns nothing, or everything."""

    def __init__(self):
        self.asked, self.refusals, self.pages, self.named = [], [], [], []
        self.always = None
        self.length = 1
        # The events of each Watch; after those of all but the last one the instance is lost.
        self.events = []
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        sticky_cas_service_pb2_grpc.add_StickyCasServiceServicer_to_server(self, self.server)
        instance_service_pb2_grpc.add_InstanceServiceServicer_to_server(self, self.server)
        server_service_pb2_grpc.add_ServerServiceServicer_to_server(self, self.server)
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
        result = access_pb2.ReadResult(values=[b"x"], length=self.length)
        return sticky_cas_service_pb2.ReadResponse(phase=2, result=result)

    def Decide(self, request, context):
        self.answer(f"decide {request.value.decode()}", context)
        return sticky_cas_service_pb2.DecideResponse()

    def Get(self, request, context):
        self.answer(f"get {request.name}", context)
        return instance_service_pb2.GetResponse(instance=instance_pb2.Instance(instance_id=INSTANCE))

    def List(self, request, context):
        self.answer(f"list {request.page_token}", context)
        return self.pages[int(request.page_token or 0)]

    def GetCluster(self, request, context):
        servers = [server_service_pb2.ClusterServer(address=address) for address in self.named]
        return server_service_pb2.GetClusterResponse(shards=1, servers=servers)

    def Watch(self, request, context):
        self.answer("watch", context)
        events = self.events.pop(0)
        yield instance_service_pb2.WatchResponse(events=instance_service_pb2.EventBatch(events=events))
        if self.events:
            context.abort_with_status(rpc_status.to_status(refusal("OWNER_LOST")))


class Pausable:
    """A way to a server that can be paused: then it takes bytes and connections, and answers nothing."""

    def __init__(self, address):
        host, port = address.split(":")
        self.target = (host, int(port))
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.sockets = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # It is closed.
            server = socket.create_connection(self.target)
            self.sockets += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self.copy, args=(source, sink), daemon=True).start()

    def close(self):
        self.goes_on.set()
        for each in [self.listener, *self.sockets]:
            each.close()

    def copy(self, source, sink):
        try:
            while piece := source.recv(65536):
                self.goes_on.wait()
                sink.sendall(piece)
        except OSError:
            pass  # One end has closed it.


def event(index, process=1):
    """An event of a history."""
    return history_pb2.Event(index=index, joined=history_pb2.Event.Joined(process=process))


def summary(number, state):
    """What a list shows of an instance."""
    return instance_pb2.InstanceSummary(instance_id=f"{number:032x}", state=state)


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
        cluster.FIRST_PAUSE = cluster.LONGEST_PAUSE = 0.001

    def open(self, addresses=None, give_up_after=60):
        addresses = addresses or [server.address for server in self.servers]
        return closing(Cluster(addresses, partial(channel.open_channel, credentials=None), "p1", give_up_after))

    def play(self, give_up_after=60, addresses=None, processes=1):
        parameters = instance_pb2.Parameters(processes=processes, warp_size=1, read_size=1)
        instance = instance_pb2.Instance(instance_id=INSTANCE, parameters=parameters)
        with self.open(addresses, give_up_after) as opened:
            return process.play(opened, instance, b"x")

    def test_a_server_on_this_machine_is_reached_without_the_proxy(self):
        # Nothing listens at this proxy.
        with closing(socket.socket()) as unused:
            unused.bind(("127.0.0.1", 0))
            proxy = f"http://127.0.0.1:{unused.getsockname()[1]}"
        one = self.servers[0]
        one.pages = [instance_service_pb2.ListResponse()]
        with mock.patch.dict("os.environ", http_proxy=proxy, https_proxy=proxy), channel.open_channel(one.address, None) as opened:
            instances_of = instance_service_pb2_grpc.InstanceServiceStub(opened)
            instances_of.List(instance_service_pb2.ListRequest(), timeout=20)
        self.assertEqual(
            [channel.is_this_machine(target) for target in ("127.1.2.3:1", "[::1]:1", "localhost:1", "10.0.0.1:1", "[::]:1", "example.org:1")],
            [True, True, True, False, False, False],
        )

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

    def test_an_owner_that_reads_its_log_is_asked_again_after_pauses(self):
        one, two, _ = self.servers
        # A pause before each, and none is followed at once.
        pauses = []
        self.enterContext(mock.patch.object(cluster.time, "sleep", pauses.append))
        for _ in range(3):
            one.refuse("RECOVERING")
        two.always = refusal("NOT_OWNER", one.address, 5)
        self.assertEqual(self.play(addresses=[one.address, two.address], give_up_after=-1), b"x")
        self.assertEqual(one.asked, ["append 1"] * 4 + ["read 2", "decide x"])
        self.assertEqual(len(pauses), 3)

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
        among = Cluster(["a:1", "http://b:1"], None, "p1", 0)
        self.assertTrue(among.learn(INSTANCE, "b:1", 5))
        self.assertFalse(among.learn(INSTANCE, "a:1", 4))
        self.assertEqual(among.server(INSTANCE), "b:1")
        among.avoid(INSTANCE, "b:1")
        self.assertEqual(among.server(INSTANCE), "a:1")
        self.assertFalse(among.learn(INSTANCE, "a:1", 4))
        self.assertTrue(among.learn(INSTANCE, "a:1", 6))

    def test_a_name_leads_to_owners_whose_epochs_are_not_compared(self):
        one, two, three = self.servers
        one.refuse("NOT_OWNER", two.address, 9)
        with self.open() as opened:
            process.find(opened, "name")
            # The next instance of the name is in another shard.
            opened.turn = 0
            one.refuse("NOT_OWNER", three.address, 2)
            process.find(opened, "name")
        self.assertEqual([server.asked for server in (two, three)], [["get name"], ["get name"]])

    def test_an_owner_that_a_given_server_names_is_followed(self):
        one, two, _ = self.servers
        one.refuse("NOT_OWNER", two.address, 5)
        one.named = [one.address, two.address]
        self.assertEqual(self.play(addresses=[one.address]), b"x")
        self.assertEqual(two.asked, ["append 1", "read 2", "decide x"])

    def test_a_server_that_is_paused_is_left(self):
        one, two, _ = self.servers
        paused = Pausable(one.address)
        self.addCleanup(paused.close)
        with self.open([paused.address, two.address]) as opened:
            process.find(opened, "name")
            self.assertEqual(one.asked, ["get name"])
            # The connection is there; and then there is a new one.
            for asked in (["get name"], ["get name"] * 2):
                paused.goes_on.clear()
                opened.turn = 0
                process.find(opened, "name")
                self.assertEqual(two.asked, asked)
        self.assertEqual(one.asked, ["get name"])

    def test_a_silent_owner_is_asked_again_after_all_others(self):
        one, two, three = self.servers
        paused = Pausable(one.address)
        self.addCleanup(paused.close)
        two.always = three.always = refusal("NOT_OWNER", paused.address, 5)
        with self.open([two.address, three.address, paused.address]) as opened:
            probe, asked_before = opened.probe, []

            def ends_lease(address):
                if address == paused.address and address in opened.down:
                    asked_before.append([len(two.asked), len(three.asked)])
                    two.always, three.always = refusal("NOT_OWNER", three.address, 6), None
                probe(address)

            opened.probe = ends_lease
            decide = sticky_cas_service_pb2.DecideRequest(instance_id=INSTANCE, value=b"x")
            opened.call(process.LIST, "Decide", decide, INSTANCE)
            self.assertEqual([one.asked, len(two.asked), three.asked], [["decide x"], 1, []])
            paused.goes_on.clear()
            opened.call(process.LIST, "Decide", decide, INSTANCE)
        self.assertEqual(asked_before, [[2, 1]])
        self.assertEqual([len(two.asked), len(three.asked)], [3, 2])

    def test_an_owner_that_is_down_is_followed_for_a_newer_epoch_alone(self):
        among = Cluster(["a:1", "b:1"], None, "p1", 0)
        self.assertTrue(among.learn(INSTANCE, "b:1", 5))
        among.down.add("b:1")
        among.avoid(INSTANCE, "b:1")
        self.assertFalse(among.learn(INSTANCE, "b:1", 5))
        self.assertEqual(among.server(INSTANCE), "a:1")
        self.assertTrue(among.learn(INSTANCE, "b:1", 6), "it was started again")

    def test_a_list_that_is_shorter_than_before_is_a_loss(self):
        one, two, _ = self.servers
        one.length, two.length = 2, 1
        answer = one.answer

        def moves(what, context):
            if what == "read 3":
                one.refuse("OWNER_LOST", two.address, 6)
            answer(what, context)

        one.answer = moves
        with self.assertRaisesRegex(process.NoDecision, "lost"):
            self.play(processes=3)

    def test_all_servers_are_listed_and_the_later_state_counts(self):
        one, two, _ = self.servers
        page = instance_service_pb2.ListResponse
        running, closed = instance_pb2.STATE_RUNNING, instance_pb2.STATE_CLOSED
        one.pages = [
            page(instances=[summary(3, closed)], next_page_token="1", listed_shards=[0, 1, 2], shards=4),
            page(instances=[summary(2, running)], other_servers=[two.address], listed_shards=[1, 2], shards=4),
        ]
        two.pages = [page(instances=[summary(3, running), summary(2, closed), summary(1, running)], listed_shards=[3], shards=4)]
        with self.open() as opened:
            found, left_out = instances.all_instances(opened)
        self.assertEqual(left_out, 1, "shard 0 was on the first page only")
        self.assertEqual(found, [summary(1, running), summary(2, closed), summary(3, closed)])

    def test_a_watch_goes_on_at_the_new_owner(self):
        one, two, _ = self.servers
        one.events = [[event(0), event(1)], []]
        two.events = [[event(0), event(1), event(2)]]
        one.always = None
        with self.open() as opened:
            found = []
            for each in watch.events(opened, INSTANCE):
                found.append(each)
                one.always = refusal("NOT_OWNER", two.address, 5)
        self.assertEqual(found, [event(0), event(1), event(2)])

    def test_a_watch_of_another_or_a_shorter_history_is_a_loss(self):
        one, two, _ = self.servers
        for after in ([event(0), event(1, process=2)], [event(0)], [event(2)]):
            one.always = None
            one.events, two.events = [[event(0), event(1)], []], [after]
            with self.open() as opened, self.assertRaises(watch.Lost):
                for _ in watch.events(opened, INSTANCE):
                    one.always = refusal("NOT_OWNER", two.address, 5)


if __name__ == "__main__":
    sys.exit(unittest.main())
