"""Client of StickyCAS: consensus among processes that cannot be trusted, on a list that cannot be rewritten.

    from stickycas import Client
    async with Client("https://localhost:7420", credentials="DIR") as client:
        print(await client.propose("demo", b"tea"))

`stickycas.sync.Client` is the same without asyncio; `stickycas.v1` has the messages of the wire.
"""

from stickycas._list import Listed
from stickycas.client import Client
from stickycas.errors import (
    Lost,
    NoDecision,
    NotStickyCas,
    Refused,
    Replaced,
    StickyCasError,
    Unreachable,
)
from stickycas.process import Appended, Process, ReadEntries, Strategy, correct, mode

__all__ = [
    "Appended",
    "Client",
    "Listed",
    "Lost",
    "NoDecision",
    "NotStickyCas",
    "Process",
    "ReadEntries",
    "Refused",
    "Replaced",
    "StickyCasError",
    "Strategy",
    "Unreachable",
    "correct",
    "mode",
]
