"""What errors say of the request; and the decision of a correct process."""

import unittest

import grpc

from stickycas import Refused, Unreachable, mode


class Errors(unittest.TestCase):
    def test_a_refusal_says_whether_it_happened_and_whether_a_retry_helps(self) -> None:
        unavailable, precondition = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION
        for reason, code, may_retry, may_have_happened in [
            ("RECOVERING", unavailable, True, False),
            ("LOG_FAILED", unavailable, True, True),
            ("PROCESS_LEFT", precondition, False, False),
            ("TOO_MANY_SESSIONS", grpc.StatusCode.RESOURCE_EXHAUSTED, False, False),
            ("OF_A_LATER_VERSION", precondition, False, True),
        ]:
            refused = Refused(reason, code, "")
            self.assertEqual(
                (refused.may_retry, refused.may_have_happened), (may_retry, may_have_happened), reason
            )
        self.assertTrue(Unreachable().may_retry and Unreachable().may_have_happened)

    def test_an_owner_needs_an_address_and_an_epoch(self) -> None:
        for metadata, owner in [
            ({"owner": "a:1", "epoch": "7"}, ("a:1", 7)),
            ({"owner": "a:1"}, None),
            ({"owner": "a:1", "epoch": "x"}, None),
            ({}, None),
        ]:
            self.assertEqual(Refused("NOT_OWNER", grpc.StatusCode.UNAVAILABLE, "", metadata).owner, owner)

    def test_ties_go_to_the_smallest_by_unsigned_bytes(self) -> None:
        self.assertEqual(mode([b"b", b"a", b"b", b"a", b"c"]), b"a")
        self.assertEqual(mode([b"\xff", b"\x7f"]), b"\x7f")
        self.assertIsNone(mode([]))


if __name__ == "__main__":
    unittest.main()
