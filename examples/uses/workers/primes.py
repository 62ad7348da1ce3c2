"""The tasks of the workers, and which published answers are right: the same for everybody who reads the log."""

from dataclasses import dataclass

TASKS = 6


@dataclass(frozen=True)
class Published:
    """An entry of the log."""

    member: int
    epoch: int
    task: int
    answer: int

    @staticmethod
    def parse(member: int, text: str) -> "Published | None":
        """None: it is no answer; a Byzantine member appends what it likes."""
        try:
            epoch, task, answer = map(int, text.split(" "))
        except ValueError:
            return None
        return Published(member, epoch, task, answer)

    def is_right(self) -> bool:
        """Done again, since nobody is believed."""
        return 0 < self.task <= TASKS and self.answer == primes_below(1000 * self.task)


def primes_below(end: int) -> int:
    """Their number."""
    return sum(all(number % d for d in range(2, int(number**0.5) + 1)) for number in range(2, end))
