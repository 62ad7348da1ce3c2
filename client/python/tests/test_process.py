"""One process at one server: its accesses, what is sent again, and what ends it."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Callable
from types import SimpleNamespace
from unittest import mock

import grpc

import stickycas
from scripted import INSTANCE, Action, Break, Hang, Refusal, Replaced, Scripted, WithServers
from stickycas import Process, _servers
from stickycas._known import Known
from stickycas.v1 import access_pb2, instance_pb2

Code = grpc.StatusCode
BOTH = [False, True]


async def append_and_read_twice(process: Process) -> bytes:
    """A strategy that has told and heard enough to notice when something is lost."""
    await process.append(b"x")
    await process.read()
    await process.read()
    return b"x"


class Processes(WithServers):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.server = self.servers[0]

    async def played(
        self, *actions: Action | None, unary: bool = False, give_up_after: float = 5.0
    ) -> list[str]:
        """What a correct process asks after it has asked for the instance, if the server does this then."""
        self.server.asked.clear()
        self.server.actions = [None, *actions]
        async with self.client(self.server.address, give_up_after=give_up_after) as client:
            self.assertEqual(await client.propose(INSTANCE, b"x", unary=unary), b"x")
        return self.server.asked[1:]

    async def test_it_appends_reads_and_decides(self) -> None:
        self.assertEqual(await self.played(), ["hello", "append 1 x", "read 2 0", "decide x"])
        self.assertEqual(await self.played(unary=True), ["append 1 x", "read 2 0", "decide x"])

    async def test_it_reads_on_until_it_holds_an_entry_of_each_warp_or_the_sealed_list(self) -> None:
        self.server.parameters = instance_pb2.Parameters(processes=4, warp_size=1, read_size=2)
        self.server.values, self.server.sealed = [b"x", b"y", b"x"], True
        self.assertEqual(await self.played(unary=True), ["append 1 x", "read 2 0", "read 3 2", "decide x"])

    async def test_it_appends_until_it_wins_in_the_append_rounds(self) -> None:
        self.server.parameters = instance_pb2.Parameters(
            processes=4, warp_size=2, read_size=4, append_rounds=2
        )
        self.server.values, self.server.sealed = [b"x", b"x", b"y"], True
        for unary in BOTH:
            self.server.failed = [2]
            self.assertEqual(
                (await self.played(unary=unary))[-4:], ["append 1 x", "append 2 x", "read 3 0", "decide x"]
            )
            # Phase 3 is in the second of two rounds.
            self.server.failed = [3]
            self.assertEqual((await self.played(unary=unary))[-3:], ["append 1 x", "read 2 0", "decide x"])

    async def test_an_append_that_lost_may_have_been_followed_by_another(self) -> None:
        def told(phase: int) -> access_pb2.Own:
            lost = access_pb2.AppendResult(outcome=access_pb2.APPEND_OUTCOME_FAILED)
            return access_pb2.Own(
                next_access_number=9, append=access_pb2.FirstAppend(phase=phase, result=lost)
            )

        two = Known(append_rounds=2)
        two.told(told(1))
        two.told(told(3))
        one = Known(append_rounds=1)
        one.told(told(1))
        with self.assertRaises(stickycas.Lost):
            one.told(told(3))

    async def test_it_decides_the_mode_and_not_its_proposal(self) -> None:
        self.server.parameters = instance_pb2.Parameters(processes=3, warp_size=1, read_size=3)
        self.server.values = [b"x", b"y", b"y"]
        async with self.client(self.server.address) as client:
            self.assertEqual(await client.propose(INSTANCE, b"x"), b"y")

    async def test_without_an_entry_there_is_no_decision(self) -> None:
        self.server.position, self.server.values, self.server.sealed = None, [], True
        async with self.client(self.server.address) as client:
            with self.assertRaises(stickycas.NoDecision):
                await client.propose(INSTANCE, b"x")

    async def test_an_open_append_window_is_not_for_this_strategy(self) -> None:
        self.server.parameters.append_window = instance_pb2.APPEND_WINDOW_OPEN
        async with self.client(self.server.address) as client:
            with self.assertRaises(stickycas.NoDecision):
                await client.propose(INSTANCE, b"x")

    async def test_a_refusal_on_the_stream_leaves_it_open(self) -> None:
        busy = Refusal("TOO_MANY_WAITING", Code.RESOURCE_EXHAUSTED, retry_after=0.7)
        asked = await self.played(None, busy, busy)
        self.assertEqual(asked, ["hello", *["append 1 x"] * 3, "read 2 0", "decide x"])
        self.assertEqual(self.pauses, [0.7] * 2)

    async def test_a_session_that_is_over_is_opened_again(self) -> None:
        asked = await self.played(None, Refusal("OWNER_LOST"))
        self.assertEqual(asked, ["hello", "append 1 x"] * 2 + ["read 2 0", "decide x"])

    async def test_an_answer_ends_the_time_in_which_nobody_answers(self) -> None:
        busy = Refusal("TOO_MANY_WAITING", Code.RESOURCE_EXHAUSTED)
        # Each look at it is 20 s later.
        clock = SimpleNamespace(monotonic=iter(range(20, 1000, 20)).__next__)
        with mock.patch.object(_servers, "time", clock):
            await self.played(None, busy, None, busy, give_up_after=30)

    async def test_a_stream_that_breaks_behind_each_welcome_is_opened_more_and_more_slowly(self) -> None:
        self.enterContext_(mock.patch.object(_servers, "time", SimpleNamespace(monotonic=lambda: 1.0)))
        await self.played(*[None, Break(Code.UNKNOWN)] * 6)
        self.assertGreater(self.pauses[5], 2 * _servers.FIRST_PAUSE)

    async def test_a_stream_that_breaks_behind_each_welcome_is_given_up(self) -> None:
        # Each look at it is 0.2 s later.
        clock = SimpleNamespace(monotonic=(tick / 5 for tick in range(5, 1000)).__next__)
        self.enterContext_(mock.patch.object(_servers, "time", clock))
        with self.assertRaisesRegex(stickycas.Unreachable, "gave up"):
            await self.played(*[None, Break(Code.UNKNOWN)] * 20, give_up_after=1)

    async def test_a_session_that_has_lasted_is_progress(self) -> None:
        # Each look at it is 1 s later.
        clock = SimpleNamespace(monotonic=iter(range(1, 1000)).__next__)
        self.enterContext_(mock.patch.object(_servers, "time", clock))
        await self.played(*[None, Break(Code.UNKNOWN)] * 6, give_up_after=2)
        self.assertLessEqual(max(self.pauses), _servers.FIRST_PAUSE)

    async def test_a_final_refusal_is_raised(self) -> None:
        for unary in BOTH:
            with self.assertRaises(stickycas.Refused) as raised:
                await self.played(
                    *[] if unary else [None],
                    Refusal("INSTANCE_CLOSED", Code.FAILED_PRECONDITION),
                    unary=unary,
                )
            refused = raised.exception
            self.assertEqual((refused.reason, refused.may_have_happened), ("INSTANCE_CLOSED", False))

    async def test_a_reason_that_is_not_known_goes_by_its_code(self) -> None:
        for unary in BOTH:
            before = [] if unary else [None]
            asked = await self.played(*before, Refusal(999, Code.UNAVAILABLE), unary=unary)
            self.assertEqual(asked.count("append 1 x"), 2)
            with self.assertRaises(stickycas.Refused) as raised:
                await self.played(*before, Refusal(999, Code.FAILED_PRECONDITION), unary=unary)
            self.assertTrue(raised.exception.may_have_happened)

    async def test_a_stream_that_ends_without_a_reason_is_opened_again(self) -> None:
        for code in [
            Code.OK,
            Code.UNKNOWN,
            Code.INTERNAL,
            Code.CANCELLED,
            Code.UNIMPLEMENTED,
            Code.NOT_FOUND,
        ]:
            asked = await self.played(None, Break(code))
            self.assertEqual(asked, ["hello", "append 1 x"] * 2 + ["read 2 0", "decide x"], code)

    async def test_a_call_that_breaks_is_made_again(self) -> None:
        for code in [Code.UNAVAILABLE, Code.UNKNOWN, Code.INTERNAL, Code.CANCELLED, Code.RESOURCE_EXHAUSTED]:
            asked = await self.played(Break(code), unary=True)
            self.assertEqual(asked, ["append 1 x"] * 2 + ["read 2 0", "decide x"], code)

    async def test_what_is_no_stickycas_is_told_as_such(self) -> None:
        self.server.actions = [Break(Code.UNIMPLEMENTED)]
        async with self.client(self.server.address) as client:
            with self.assertRaises(stickycas.NotStickyCas):
                await client.get("name")

    async def test_a_call_that_waits_for_its_phase_is_made_again_however_long_that_takes(self) -> None:
        self.enterContext_(mock.patch.object(_servers, "CALL_TIMEOUT", 2))
        asked = await self.played(Hang(), Hang(), unary=True, give_up_after=0)
        self.assertEqual(asked, ["append 1 x"] * 3 + ["read 2 0", "decide x"])

    async def test_a_server_that_is_silent_is_given_up(self) -> None:
        self.enterContext_(mock.patch.object(_servers, "CALL_TIMEOUT", 0.05))
        self.enterContext_(mock.patch.object(_servers, "PROBE_TIMEOUT", 0.05))
        self.server.answers_probes = False
        with self.assertRaises(stickycas.Unreachable):
            await self.played(Hang(), unary=True, give_up_after=0)

    async def test_another_client_of_the_same_process_ends_this_one(self) -> None:
        with self.assertRaises(stickycas.Replaced):
            await self.played(None, Replaced(by_itself=False))

    async def test_an_earlier_hello_of_its_own_does_not(self) -> None:
        asked = await self.played(None, Replaced(by_itself=True))
        self.assertEqual(asked, ["hello", "append 1 x"] * 2 + ["read 2 0", "decide x"])

    async def test_whoever_is_no_process_cannot_play(self) -> None:
        self.server.is_member = False
        async with self.client(self.server.address) as client:
            with self.assertRaisesRegex(stickycas.Refused, "NOT_A_MEMBER"):
                await client.propose(INSTANCE, b"x")

    async def test_an_access_that_was_cancelled_is_finished_before_the_next_one(self) -> None:
        async def impatient(process: Process) -> bytes:
            appending = asyncio.ensure_future(process.append(b"x"))
            while not any("append" in asked for asked in self.server.asked):
                await asyncio.sleep(0.001)
            appending.cancel()
            await asyncio.wait([appending])
            await process.read()
            return b"x"

        for unary in BOTH:
            self.server.asked.clear()
            self.server.actions = [None, Hang()] if unary else [None, None, Hang()]
            async with self.client(self.server.address) as client:
                await client.play(INSTANCE, impatient, unary=unary)
            accesses = [it for it in self.server.asked if it.startswith(("append", "read"))]
            self.assertEqual(accesses, ["append 1 x", "append 1 x", "read 2 0"])

    async def test_after_a_final_refusal_another_access_has_the_same_number(self) -> None:
        async def persistent(process: Process) -> bytes:
            with self.assertRaisesRegex(stickycas.Refused, "VALUE_TOO_LARGE"):
                await process.append(b"xx")
            await process.append(b"x")
            await process.read()
            return b"x"

        for unary in BOTH:
            self.server.asked.clear()
            refusal = Refusal("VALUE_TOO_LARGE", Code.INVALID_ARGUMENT)
            self.server.actions = [None, refusal] if unary else [None, None, refusal]
            async with self.client(self.server.address) as client:
                await client.play(INSTANCE, persistent, unary=unary)
            accesses = [it for it in self.server.asked if it.startswith(("append", "read"))]
            self.assertEqual(accesses, ["append 1 xx", "append 1 x", "read 2 0"])

    async def test_an_access_that_may_have_happened_is_finished_before_another_one(self) -> None:
        async def persistent(process: Process) -> bytes:
            with self.assertRaisesRegex(stickycas.Refused, "LOG_FAILED"):
                await process.append(b"x")
            await process.read()
            return b"x"

        for unary in BOTH:
            self.server.asked.clear()
            refusal = Refusal("LOG_FAILED")
            self.server.actions = [None, refusal] if unary else [None, None, refusal]
            async with self.client(self.server.address, give_up_after=0) as client:
                await client.play(INSTANCE, persistent, unary=unary)
            accesses = [it for it in self.server.asked if it.startswith(("append", "read"))]
            self.assertEqual(accesses, ["append 1 x", "append 1 x", "read 2 0"])

    async def test_accesses_at_the_same_time_have_numbers_of_their_own(self) -> None:
        async def hasty(process: Process) -> bytes:
            await asyncio.gather(process.append(b"x"), process.read())
            return b"x"

        async with self.client(self.server.address) as client:
            await client.play(INSTANCE, hasty)
        self.assertEqual(self.server.asked[1:], ["hello", "append 1 x", "read 2 0"])

    async def test_accesses_of_an_earlier_life_are_finished_before_a_strategy_begins(self) -> None:
        self.server.own = access_pb2.Own(process=1, next_access_number=3)
        self.server.own.waiting.add(number=1, append=access_pb2.Append(value=b"x"))
        self.server.own.waiting.add(number=2, read=access_pb2.Read(start=0))
        waited = ["append 1 x", "read 2 0"]
        self.assertEqual(await self.played(unary=True), [*waited, "read 3 0", "decide x"])

        async def strategy(process: Process) -> bytes:
            self.assertEqual(self.server.asked[1:], ["hello", *waited])
            return (await process.read()).values[0]

        self.server.asked.clear()
        async with self.client(self.server.address) as client:
            self.assertEqual(await client.play(INSTANCE, strategy), b"x")

    async def test_a_decision_of_an_earlier_life_stands(self) -> None:
        self.server.own = access_pb2.Own(process=1, next_access_number=3, decided=b"y")
        async with self.client(self.server.address) as client:
            self.assertEqual(await client.propose(INSTANCE, b"x"), b"y")
        self.assertEqual(self.server.asked, ["get it"])


class Losses(WithServers):
    """A server, or a new owner, that shows less than before, or something else."""

    async def lose(self, change: Callable[[Scripted], None], what: str, unary: bool = True) -> None:
        """Between its two reads a process meets another server, which has forgotten this."""
        one, two, _ = self.servers
        for server in [one, two]:
            server.asked.clear()
            server.own = access_pb2.Own(process=1, next_access_number=3)
            server.own.append.phase = 1
            server.own.append.result.CopyFrom(server.append_result()[1])
            server.values, server.sealed = [b"x", b"y"], True
            server.parameters.read_size = 2
        change(two)
        one.own = access_pb2.Own(process=1, next_access_number=1)
        lost = Refusal("OWNER_LOST", owner=two.address, epoch=7)
        one.actions = [*[None] * (3 if unary else 4), lost]
        async with self.client() as client:
            with self.assertRaisesRegex(stickycas.Lost, what):
                await client.play(INSTANCE, append_and_read_twice, unary=unary)
        self.assertNotEqual(two.asked, [])

    async def test_what_is_the_same_is_no_loss(self) -> None:
        for unary in BOTH:
            with self.assertRaisesRegex(AssertionError, "Lost not raised"):
                await self.lose(lambda _: None, "", unary)

    async def test_a_list_that_is_shorter(self) -> None:
        for unary in BOTH:
            await self.lose(lambda two: setattr(two, "values", [b"x"]), "had 2 entries", unary)

    async def test_a_list_that_has_grown_though_it_was_sealed(self) -> None:
        await self.lose(lambda two: setattr(two, "values", [b"x", b"y", b"z"]), "was sealed")

    async def test_a_list_that_is_not_sealed_any_more(self) -> None:
        await self.lose(lambda two: setattr(two, "sealed", False), "was sealed")

    async def test_an_entry_that_is_another_one(self) -> None:
        await self.lose(lambda two: setattr(two, "values", [b"x", b"z"]), "entry 1 was b'y'")

    async def test_an_append_that_stands_somewhere_else(self) -> None:
        one, *_ = self.servers
        one.position, one.values = 1, [b"x", b"y"]
        one.parameters.read_size = 2
        async with self.client(one.address) as client:
            with self.assertRaisesRegex(stickycas.Lost, "entry 1 was b'x'"):
                await client.play(INSTANCE, append_and_read_twice)

    async def test_an_append_that_was_won_behind_the_end_of_the_list(self) -> None:
        one, *_ = self.servers
        one.position = 1
        async with self.client(one.address) as client:
            with self.assertRaisesRegex(stickycas.Lost, "had 2 entries"):
                await client.play(INSTANCE, append_and_read_twice)

    async def test_what_an_earlier_life_is_told_counts(self) -> None:
        one, *_ = self.servers
        one.values = [b"x", b"y"]
        one.own = access_pb2.Own(process=1, next_access_number=2)
        one.own.waiting.add(number=1, read=access_pb2.Read(start=0))

        async def strategy(process: Process) -> bytes:
            one.values = [b"x"]
            return (await process.read()).values[0]

        async with self.client(one.address) as client:
            with self.assertRaisesRegex(stickycas.Lost, "had 2 entries"):
                await client.play(INSTANCE, strategy)

    async def test_an_access_that_was_never_made(self) -> None:
        await self.lose(
            lambda two: setattr(two.own, "next_access_number", 2), "access 2 was taken", unary=False
        )

    async def test_a_read_outside_phases_takes_no_number(self) -> None:
        one, *_ = self.servers
        one.read_phase = 0

        async def strategy(process: Process) -> bytes:
            await process.read()
            return (await process.read()).values[0]

        one.actions = [None, None, None, Break(Code.UNKNOWN)]
        async with self.client(one.address) as client:
            self.assertEqual(await client.play(INSTANCE, strategy), b"x")
        self.assertEqual(one.asked[1:], ["hello", "read 1 0", "read 2 0", "hello", "read 2 0"])

    async def test_an_append_that_is_not_known(self) -> None:
        await self.lose(lambda two: two.own.ClearField("append"), "is not known", unary=False)
        await self.lose(lambda two: setattr(two.own.append, "phase", 5), "is not known", unary=False)

    async def test_an_append_with_another_answer(self) -> None:
        await self.lose(
            lambda two: setattr(two.own.append.result, "position", 1), "another answer", unary=False
        )


if __name__ == "__main__":
    unittest.main()
