"""What servers have told one process, and whether they still stand by it (SPEC A3, R2).

A server that was killed comes back with all that it has told, and so does a new owner. One whose log was put back to an
earlier state does not; a process that goes on with it could append twice, or decide from a second history.
"""

from __future__ import annotations

from stickycas.errors import Lost
from stickycas.v1 import access_pb2, sticky_cas_service_pb2


class Known:
    """What only grows, as far as it was told."""

    def __init__(self, append_rounds: int) -> None:
        self.append_rounds = append_rounds
        self.next_number = 1
        self.append: access_pb2.FirstAppend | None = None
        """The append that won, or else the last within the append rounds."""
        self.entries: dict[int, bytes] = {}
        self.length, self.sealed = 0, False

    def told(self, own: access_pb2.Own) -> None:
        """A server has told the state of the process. Raises `Lost` if that is less than before."""
        if own.next_access_number < self.next_number:
            raise Lost(
                f"access {self.next_number - 1} was taken, and now {own.next_access_number} would be new"
            )
        now = own.append if own.HasField("append") else None
        # One that did not win may have been followed by another (K2), and one that another program has made for the process
        # may be an earlier one.
        is_last = self.append_rounds == 1 or self._has_won()
        if self.append and (now is None or (now.phase > self.append.phase and is_last)):
            raise Lost(f"the append of phase {self.append.phase} was answered, and now it is not known")
        if self.append and now and now.phase == self.append.phase and now.result != self.append.result:
            raise Lost(f"the append of phase {now.phase} has another answer than before")
        self.next_number, self.append = own.next_access_number, now

    def answered(self, access: sticky_cas_service_pb2.Access, answer: sticky_cas_service_pb2.Answer) -> None:
        """An access was answered for the first time. Raises `Lost` if that contradicts what was told before."""
        if answer.phase:
            # Outside phases no number is taken.
            self.next_number = max(self.next_number, access.number + 1)
        if answer.HasField("append"):
            result = answer.append
            if not self.append or (access.number <= self.append_rounds and not self._has_won()):
                self.append = access_pb2.FirstAppend(phase=answer.phase, result=result)
            if result.HasField("position"):
                self._grows(result.position + 1, self.sealed)
                self._stands(result.position, access.append.value)
        else:
            self._grows(answer.read.length, answer.read.sealed)
            for position, value in enumerate(answer.read.values, answer.read.start):
                self._stands(position, value)

    def _has_won(self) -> bool:
        return self.append is not None and self.append.result.HasField("position")

    def _grows(self, length: int, sealed: bool) -> None:
        if length < self.length or (self.sealed and (not sealed or length > self.length)):
            end = " and was sealed" if self.sealed else ""
            raise Lost(f"the list had {self.length} entries{end}, and now it has {length}")
        self.length, self.sealed = length, sealed

    def _stands(self, position: int, value: bytes) -> None:
        known = self.entries.setdefault(position, value)
        if known != value:
            raise Lost(f"entry {position} was {known!r}, and now it is {value!r}")
