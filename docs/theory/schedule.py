#!/usr/bin/env python3
"""The schedule of docs/theory/schedule.md, recomputed. Run without arguments, it checks every row of its tables."""

import pathlib
import re

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15


def mix(x):
    """The first output of SplitMix64 started at x."""
    z = (x + GAMMA) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def order_of(order, warps, seed, round_):
    """The warps of a round, in the order of its phases."""
    if order == "ascending":
        return list(range(1, warps + 1))
    if order == "descending":
        return list(range(warps, 0, -1))
    state = mix(mix(mix(seed) ^ 1) ^ round_)
    result = list(range(1, warps + 1))
    for i in range(warps - 1, 0, -1):
        j = mix(state) % (i + 1)
        state = (state + GAMMA) & MASK
        result[i], result[j] = result[j], result[i]
    return result


def warp_of(order, warps, seed, phase):
    """The warp that a phase belongs to."""
    round_, slot = (phase - 1) // warps + 1, (phase - 1) % warps
    return order_of(order, warps, seed, round_)[slot]


def arbiter_hash(seed, phase, process):
    """The rank of an append under the uniform arbiter: the lowest of a phase wins."""
    return mix(mix(mix(mix(seed) ^ 2) ^ phase) ^ process)


def main():
    """Checks the tables."""
    text = pathlib.Path(__file__).with_name("schedule.md").read_text()
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in re.findall(r"^\|.*\|$", text, re.M)]
    checked = 0
    for row in rows:
        if len(row) == 6 and row[0].isdigit():
            n, p, seed, round_ = int(row[0]), int(row[1]), int(row[3]), int(row[4])
            assert order_of(row[2], -(-n // p), seed, round_) == [int(w) for w in row[5].split()], row
            checked += 1
        if len(row) == 4 and row[0].isdigit():
            assert f"{arbiter_hash(*map(int, row[:3])):016x}" == row[3], row
            checked += 1
    assert checked > 0
    print(f"{checked} rows hold")


if __name__ == "__main__":
    main()
