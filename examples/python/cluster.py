"""The servers of a cluster, and which of them to ask: the points of docs/clients.md, but for Attach, Create and GetCounts."""

import random
import sys
import time
from pathlib import Path

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

sys.path.insert(0, str(Path(__file__).parent / "generated"))

from stickycas.v1 import server_service_pb2, server_service_pb2_grpc  # noqa: E402

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
# How long a server may take to name the servers of its cluster, in seconds.
ANSWER_TIMEOUT = 2.0
# How long a server that did not answer may take to show that it does again, in seconds.
PROBE_TIMEOUT = 1.0
# Between two tries, in seconds: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5
# Redirects that are followed without a pause. Servers that name each other cost no more than one that is down.
MAX_REDIRECTS = 4
# For how many instances owners are remembered, and how many servers are learnt from others.
MOST_OWNERS, MOST_SERVERS = 1000, 1000


def refusal(error):
    """Why the server refused a call, after how many seconds it may be made again, and who is the owner, as far as it says so."""
    reason, delay, owner = None, 0, None
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            reason = info.reason
            address, epoch = info.metadata.get("owner"), info.metadata.get("epoch", "")
            owner = (address, int(epoch)) if address and epoch.isdecimal() else None
        elif detail.Unpack(retry):
            delay = retry.retry_delay.ToTimedelta().total_seconds()
    return reason, delay, owner


class Cluster:
    """The servers as one principal sees them: a channel to each that was asked, and what they have told of owners."""

    def __init__(self, addresses, open_channel, principal, give_up_after, verbose=False):
        """addresses: HOST:PORT of each. open_channel: makes a channel of one. give_up_after: how long none may be in reach."""
        self.given = [address.removeprefix("http://").removeprefix("https://") for address in addresses]
        self.addresses = list(self.given)
        self.open_channel = open_channel
        self.metadata = [("stickycas-principal", principal)]
        self.give_up_after = give_up_after
        self.verbose = verbose
        self.channels = {}
        self.owners = {}
        # The servers that could not be reached, and have not answered since.
        self.down = set()
        self.turn = 0

    def call(self, service, method, request, instance_id=""):
        """The response; the same request is made until it comes or is refused for good. Without an id any server is asked."""
        route = Route(self, instance_id)
        while True:
            try:
                response = getattr(service(route.channel()), method)(request, metadata=self.metadata, timeout=CALL_TIMEOUT)
                route.note_answer()
                return response
            except grpc.RpcError as error:
                route.next_try(error)

    def server(self, instance_id, tried=()):
        """The address to ask: that of the owner if it is known and does not fail, else the next one that was not tried."""
        _, owner = self.owners.get(instance_id, (0, None))
        turn = self.turn % len(self.addresses)
        in_order = self.addresses[turn:] + self.addresses[:turn]
        return owner or next((address for address in in_order if address not in tried), in_order[0])

    def channel(self, address):
        """The channel to a server. There is one, whatever number of instances it owns."""
        if address not in self.channels:
            self.channels[address] = self.open_channel(address)
        return self.channels[address]

    def may_ask(self, address):
        """Whether a server was given, or one that was given names it: a wrong one cannot send this client anywhere else."""
        if address not in self.addresses:
            for server in self.given:
                service = server_service_pb2_grpc.ServerServiceStub(self.channel(server))
                request = server_service_pb2.GetClusterRequest()
                try:
                    found = service.GetCluster(request, metadata=self.metadata, timeout=ANSWER_TIMEOUT)
                except grpc.RpcError:
                    continue
                new = [it.address for it in found.servers if it.address and it.address not in self.addresses]
                self.addresses += new[: MOST_SERVERS - len(self.addresses)]
                break
        return address in self.addresses

    def probe(self, address):
        """Raises an error if a server that could not be reached does not answer now, in a short time. Any refusal is an answer."""
        if address not in self.down:
            return
        service = server_service_pb2_grpc.ServerServiceStub(self.channel(address))
        try:
            service.GetCluster(server_service_pb2.GetClusterRequest(), metadata=self.metadata, timeout=PROBE_TIMEOUT)
        except grpc.RpcError as error:
            if error.code() in ASK_AGAIN and refusal(error)[0] is None:
                raise
        self.down.discard(address)

    def learn(self, instance_id, owner, epoch):
        """A server has named an owner. Whether to ask that one at once: only if its epoch is not older than the one known.

        If that owner could not be reached, only if its epoch is newer: before its lease has ended the others name it still, and
        a server that is silent costs time. Its turn comes after all others.

        Epochs of different shards say nothing of each other, and behind a name comes one instance after the other: without
        an id nothing is kept.
        """
        known, _ = self.owners.get(instance_id, (0, None))
        if epoch < known or not self.may_ask(owner):
            return False
        if owner in self.down and known in (0, epoch):
            if instance_id:
                self.owners[instance_id] = (epoch, None)
            return False
        if instance_id:
            if len(self.owners) >= MOST_OWNERS:
                self.owners.clear()
            self.owners[instance_id] = (epoch, owner)
        return True

    def avoid(self, instance_id, address):
        """A server is not the owner, or does not answer: the next one is asked. The epoch stays known."""
        epoch, owner = self.owners.get(instance_id, (0, None))
        if owner == address:
            self.owners[instance_id] = (epoch, None)
        if self.addresses[self.turn % len(self.addresses)] == address:
            self.turn += 1

    def close(self):
        """Closes all channels."""
        for channel in self.channels.values():
            channel.close()


class Route:
    """The way of one call, or of one stream, to the server that answers it."""

    def __init__(self, cluster, instance_id=""):
        """Without an id, any server will do."""
        self.cluster, self.instance_id = cluster, instance_id
        self.server = cluster.server(instance_id)
        self.failing_since, self.redirects, self.pause = None, 0, FIRST_PAUSE
        # The servers that have refused since one could not be reached, and that one.
        self.tried = set()

    def channel(self):
        """The channel to the server to ask. Raises an error if that could not be reached and does not answer yet."""
        self.cluster.probe(self.server)
        return self.cluster.channel(self.server)

    def note_answer(self):
        """The server has answered."""
        self.failing_since, self.redirects, self.pause = None, 0, FIRST_PAUSE
        self.tried.clear()
        self.cluster.down.discard(self.server)

    def next_try(self, error):
        """Chooses the server to ask next, and waits if that is due. Raises the error if nothing is to be asked again."""
        if error.code() not in ASK_AGAIN:
            raise error
        reason, delay, owner = refusal(error)
        if self.cluster.verbose:
            happened = "it did not happen" if reason in DID_NOT_HAPPEN else "it may have happened"
            print(f"asks again: {error.code().name}, {reason}: {happened}", file=sys.stderr, flush=True)
        unreachable = reason is None and (error.code() == grpc.StatusCode.UNAVAILABLE or self.server in self.cluster.down)
        if unreachable:
            self.cluster.down.add(self.server)
            self.tried.clear()
        if unreachable or error.code() == grpc.StatusCode.UNAVAILABLE:
            self.cluster.avoid(self.instance_id, self.server)
            self.tried.add(self.server)
        follows = owner is not None and owner[0] != self.server and self.redirects < MAX_REDIRECTS
        if follows and self.cluster.learn(self.instance_id, *owner):
            self.redirects += 1
            self.server = owner[0]
            return
        # Pings are answered while a call waits for its phase (channel.py).
        if reason in WILL_SERVE or (error.code() == grpc.StatusCode.DEADLINE_EXCEEDED and not unreachable):
            self.failing_since = None
        else:
            self.failing_since = self.failing_since or time.monotonic()
            if time.monotonic() - self.failing_since > self.cluster.give_up_after:
                raise error
        # Not all at the same moment.
        time.sleep(max(delay, self.pause) * random.uniform(1, 1.5))
        self.pause = min(2 * self.pause, LONGEST_PAUSE)
        self.redirects = 0
        self.server = self.cluster.server(self.instance_id, self.tried)
        if self.server in self.tried:
            self.tried.clear()
