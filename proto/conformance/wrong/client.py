#!/usr/bin/env python3
"""A client for `conformance.py client`: right without a flag, and with `--wrong NAME` wrong in one way."""

from __future__ import annotations

import argparse
import collections
import json
import queue
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import grpc
from script import refusal_details
from wire import METHODS

from stickycas.v1 import access_pb2, errors_pb2, instance_service_pb2, sticky_cas_service_pb2

WAYS = [
    "another-value",
    "decides-early",
    "largest-of-a-tie",
    "wrong-start",
    "another-number",
    "ignores-the-seal",
    "appends-once",
]
GIVE_UP_AFTER = 30
# Codes of refusals after which the same request helps.
AGAIN = [
    code.value[0]
    for code in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
    )
]


class Again(Exception):
    """The same request may be sent again: after a pause, or at once at the owner."""

    def __init__(self, owner: str = "", after: float = 0) -> None:
        self.owner, self.after = owner, after


class Final(Exception):
    """No retry helps. The text names the reason."""


def judge_error(error: Any, stream: bool) -> Exception:
    """What the end of a call, or of a stream, means."""
    reason, metadata, _ = refusal_details(error.trailing_metadata())
    code = error.code()
    if reason:
        return judge_refusal(code.value[0], reason, metadata.get("owner", ""), 0)
    refused = [
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    ]
    return Again() if stream or code not in refused else Final(f"{code.name}: {error.details()}")


def judge_refusal(code: int, reason: str, owner: str, after: float) -> Exception:
    """What a refusal of StickyCAS means."""
    return Again(owner, after) if code in AGAIN and reason != "TOO_MANY_SESSIONS" else Final(reason)


class Connection:
    """Calls to the servers, one after the other, each until it is answered."""

    def __init__(self, task: dict[str, str]) -> None:
        self.servers = task["server"].split(",")
        self.metadata = (("stickycas-principal", task["principal"]),)
        self.attach = task["transport"] == "attach"
        self.channels = {server: grpc.insecure_channel(server) for server in self.servers}
        self.at = 0
        self.id = ""
        self.incarnation = random.getrandbits(64) | 1
        self.requests: queue.SimpleQueue[Any] | None = None
        self.responses: Any = None
        self.frames: collections.deque[Any] = collections.deque()
        self.repeated = False

    def until_answered(self, attempt: Callable[[], Any]) -> Any:
        """Repeats what may be repeated."""
        pause, redirects, end = 0.05, 0, time.monotonic() + GIVE_UP_AFTER
        self.repeated = False
        while True:
            try:
                return attempt()
            except Again as again:
                self.leave_stream()
                self.repeated = True
                if again.owner in self.servers and redirects < 4:
                    self.at, redirects = self.servers.index(again.owner), redirects + 1
                    continue
                if time.monotonic() > end:
                    raise Final("no answer") from None
                self.at = (self.at + 1) % len(self.servers)
                time.sleep(max(again.after, pause * random.uniform(0.5, 1)))
                pause = min(2 * pause, 0.5)

    def call(self, name: str, request: Any) -> Any:
        """A unary call."""
        method, channel = METHODS[name], self.channels[self.servers[self.at]]
        multi = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        try:
            return multi(request, timeout=10, metadata=self.metadata)
        except grpc.RpcError as error:
            raise judge_error(error, False) from None

    def get(self, name: str) -> Any:
        """The instance of that name."""
        request = instance_service_pb2.GetRequest(name=name)
        return self.until_answered(lambda: self.call("Get", request))

    def access(self, number: Callable[[], int], op: Any) -> Any:
        """An append or a read: its answer."""
        is_append = isinstance(op, access_pb2.Append)

        def attempt() -> Any:
            if self.attach:
                access = sticky_cas_service_pb2.Access(number=number())
                (access.append if is_append else access.read).CopyFrom(op)
                return self.exchange(sticky_cas_service_pb2.ClientFrame(access=access)).answer
            if is_append:
                request = sticky_cas_service_pb2.AppendRequest(access_number=number(), value=op.value)
            else:
                request = sticky_cas_service_pb2.ReadRequest(access_number=number(), start=op.start)
            request.instance_id = self.id
            response = self.call("Append" if is_append else "Read", request)
            answer = sticky_cas_service_pb2.Answer(phase=response.phase)
            (answer.append if is_append else answer.read).CopyFrom(response.result)
            return answer

        return self.until_answered(attempt)

    def decide(self, value: bytes) -> None:
        """Reports the decision."""
        if self.attach:
            frame = sticky_cas_service_pb2.ClientFrame(decision=sticky_cas_service_pb2.Decision(value=value))
            self.until_answered(lambda: self.exchange(frame))
        else:
            request = sticky_cas_service_pb2.DecideRequest(instance_id=self.id, value=value)
            self.until_answered(lambda: self.call("Decide", request))

    def exchange(self, frame: Any) -> Any:
        """Sends a frame on the stream, which is opened if there is none, and returns the answer."""
        if self.requests is None:
            method, channel = METHODS["Attach"], self.channels[self.servers[self.at]]
            self.requests = queue.SimpleQueue()
            multi = channel.stream_stream(
                method.path, method.request.SerializeToString, method.response.FromString
            )
            self.responses = multi(iter(self.requests.get, None), metadata=self.metadata)
            hello = sticky_cas_service_pb2.Hello(instance_id=self.id, incarnation=self.incarnation)
            self.exchange(sticky_cas_service_pb2.ClientFrame(hello=hello))
        self.requests.put(sticky_cas_service_pb2.AttachRequest(frames=[frame]))
        try:
            while not self.frames:
                self.frames.extend(next(self.responses).frames)
        except StopIteration:
            raise Again from None
        except grpc.RpcError as error:
            raise judge_error(error, True) from None
        answer = self.frames.popleft()
        if answer.HasField("replaced"):
            if answer.replaced.incarnation == self.incarnation:
                raise Again
            raise Final("another client plays this process")
        if answer.HasField("refusal"):
            refusal = answer.refusal
            reason = "a reason that is not known"
            if refusal.reason in errors_pb2.RefusalReason.values():
                reason = errors_pb2.RefusalReason.Name(refusal.reason).removeprefix("REFUSAL_REASON_")
            raise judge_refusal(
                refusal.code, reason, refusal.owner, refusal.retry_after.ToMilliseconds() / 1000
            )
        return answer

    def leave_stream(self) -> None:
        """The next frame opens a new stream."""
        if self.requests is not None:
            self.requests.put(None)
            self.responses.cancel()
            self.requests = None
            self.frames.clear()

    def close(self) -> None:
        """Ends all connections."""
        self.leave_stream()
        for channel in self.channels.values():
            channel.close()


def play(task: dict[str, str], wrong: str = "") -> dict[str, str]:
    """Plays a correct process, or one that is wrong in one way."""
    connection = Connection(task)
    try:
        return {"decided": process(connection, task, wrong).decode()}
    except Final as final:
        return {"error": str(final)}
    finally:
        connection.close()


def process(connection: Connection, task: dict[str, str], wrong: str) -> bytes:
    """The algorithm (D1): the decision."""
    got = connection.get(task["instance"])
    connection.id = got.instance.instance_id
    own, parameters = got.own, got.instance.parameters
    if own.HasField("decided"):
        return bytes(own.decided)
    warps = -(-parameters.processes // parameters.warp_size)
    rounds = max(parameters.append_rounds, 1)
    in_last = parameters.processes - (warps - 1) * parameters.warp_size
    most = (warps - 1) * rounds + min(rounds, in_last)
    number = own.next_access_number

    def this_number() -> int:
        nonlocal number
        if wrong == "another-number" and connection.repeated:
            number += 1
        return number

    last = sticky_cas_service_pb2.Answer(phase=own.append.phase, append=own.append.result)
    for waiting in own.waiting:
        old = waiting.number
        answer = connection.access(lambda old=old: old, getattr(waiting, waiting.WhichOneof("op")))
        last = answer if answer.HasField("append") else last
    failed = access_pb2.APPEND_OUTCOME_FAILED
    again = 0 if wrong == "appends-once" else warps * (rounds - 1)
    while number == 1 or (last.append.outcome == failed and last.phase <= again):
        value = "wrong" if wrong == "another-value" else task["value"]
        last = connection.access(this_number, access_pb2.Append(value=value.encode()))
        number += 1
    held: list[bytes] = []
    reads = known = 0
    while True:
        start = reads * parameters.read_size if wrong == "wrong-start" else len(held)
        result = connection.access(this_number, access_pb2.Read(start=start)).read
        if result.length < known:
            raise Final("the list has become shorter: entries are lost")
        known = result.length
        number, reads = number + 1, reads + 1
        held += result.values
        complete = result.sealed and len(held) == result.length and wrong != "ignores-the-seal"
        if complete or len(held) >= most or (wrong == "decides-early" and held):
            break
    if not held:
        raise Final("the list is sealed and has no entry: there is no decision")
    counts = collections.Counter(held)
    modes = [value for value, count in counts.items() if count == max(counts.values())]
    decision = max(modes) if wrong == "largest-of-a-tie" else min(modes)
    connection.decide(decision)
    return decision


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrong", choices=WAYS, default="")
    args = parser.parse_args()
    print(json.dumps(play(json.loads(sys.stdin.readline()), args.wrong)))


if __name__ == "__main__":
    main()
