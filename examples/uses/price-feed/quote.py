"""A feeder's quote: the price as it sees it, to the nearest multiple of a tick, as the text that it proposes.

quote.py FEEDER: that of one feeder of the compose file, with the tick and the seed of the environment.
"""

import os
import random
import sys

# In cents. Feeders see the price with an error that is normally distributed.
PRICE = 10_000
DEVIATION = 3.0


def quote(feeder: int, tick: int, seed: str) -> str:
    """What a feeder proposes; all prices have as many digits, so that their order is that of their texts."""
    seen = random.Random(f"{seed}/{feeder}").gauss(PRICE, DEVIATION)
    cents = round(seen / tick) * tick
    return f"{cents // 100:03}.{cents % 100:02}"


if __name__ == "__main__":
    print(quote(int(sys.argv[1]), int(os.environ["FEED_TICK"]), os.environ["FEED_SEED"]))
