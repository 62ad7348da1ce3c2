#!/usr/bin/env python3
"""Draws the result of runs.py: chart.py <runs.csv >chart.svg.

A row is a tick, a column a number of Byzantine feeders. Colours (chart.css) are those of the reports of
`stickycas-loadgen campaign`.
"""

import csv
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

FEEDERS = 16
LEFT, TOP, WIDTH, HEIGHT, BELOW = 210, 78, 52, 36, 84

DESCRIPTION = (
    f"A row for each tick, a column for each number of Byzantine feeders of {FEEDERS}. The coarser the tick, "
    "the fewer different prices correct feeders propose, and the more Byzantine feeders are borne."
)


@dataclass
class Cell:
    """The runs with one tick and one number of Byzantine feeders."""

    runs: int = 0
    pushed: int = 0
    distinct: list[int] = field(default_factory=list)

    def percent(self) -> int:
        """The share of runs in which the pushed price was decided: 0 only for none, 100 only for all."""
        if self.pushed in (0, self.runs):
            return 100 if self.pushed else 0
        return min(99, max(1, round(100 * self.pushed / self.runs)))

    def shade(self) -> int:
        """The shade of that share: 0 only for none, 10 only for all."""
        return self.percent() // 10 if self.percent() in (0, 100) else 1 + 2 * (self.percent() // 20)


def read() -> dict[int, dict[int, Cell]]:
    """The cells, by tick and number of Byzantine feeders."""
    rows: dict[int, dict[int, Cell]] = defaultdict(lambda: defaultdict(Cell))
    for line in csv.DictReader(sys.stdin):
        cell = rows[int(line["tick"])][int(line["byzantine"])]
        cell.runs += int(line["runs"])
        cell.pushed += int(line["pushed"])
        cell.distinct.append(int(line["distinct"]))
    return rows


def text(x: float, y: float, words: object, classes: str = "") -> str:
    """A text at a place."""
    return f'<text class="{classes}" x="{x:g}" y="{y:g}">{words}</text>'


def draw_row(y: int, tick: int, cells: dict[int, Cell], least: int, most: int) -> list[str]:
    """The row of a tick, with which correct feeders proposed from `least` to `most` different prices."""
    out = [
        text(LEFT - 88, y + 23, f"{tick} ct", "end"),
        text(LEFT - 14, y + 23, least if least == most else f"{least} to {most}", "end"),
    ]
    for column, (byzantine, cell) in enumerate(sorted(cells.items())):
        x = LEFT + WIDTH * column
        words = f"tick {tick} ct, {byzantine} Byzantine: {cell.pushed} of {cell.runs} runs"
        out += [
            f'<g class="h{cell.shade()}"><title>{words}</title>',
            f'<rect x="{x + 0.5}" y="{y + 0.5}" width="{WIDTH - 1}" height="{HEIGHT - 1}"/>',
            text(x + WIDTH / 2, y + 23, cell.percent(), "middle"),
            "</g>",
        ]
    return out


def draw(rows: dict[int, dict[int, Cell]]) -> list[str]:
    """The lines of the drawing."""
    columns = sorted(next(iter(rows.values())))
    runs = next(iter(rows.values()))[0].runs
    width, bottom = LEFT + WIDTH * len(columns) + 24, TOP + HEIGHT * len(rows)
    size = f'width="{width}" height="{bottom + BELOW}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + BELOW}" {size}',
        'role="img" aria-labelledby="title description">',
        '<title id="title">What quantisation costs</title>',
        f'<desc id="description">{DESCRIPTION}</desc>',
        f"<style>\n{Path(__file__).with_name('chart.css').read_text()}</style>",
        f'<rect class="page" {size}/>',
        text(16, 26, "Runs in which the pushed price was decided, in percent", "title"),
        text(LEFT - 88, TOP - 10, "tick", "soft end"),
        text(LEFT - 14, TOP - 10, "|Vc|", "soft end"),
    ]
    frontier = []
    for row, (tick, cells) in enumerate(sorted(rows.items())):
        distinct = [number for cell in cells.values() for number in cell.distinct]
        y = TOP + HEIGHT * row
        out += draw_row(y, tick, cells, min(distinct), max(distinct))
        promised = [byzantine for byzantine in columns if byzantine * (max(distinct) + 1) < FEEDERS]
        x = LEFT + WIDTH * len(promised)
        frontier += [f"{x},{y}", f"{x},{y + HEIGHT}"]
    out.append(f'<polyline class="line" points="{" ".join(frontier)}"/>')
    for column, byzantine in enumerate(columns):
        out.append(text(LEFT + WIDTH * (column + 0.5), bottom + 20, byzantine, "middle"))
    legend = "left of it the theorem promises 0: f·(|Vc|+1)·p &lt; n, with the largest |Vc| of the row."
    return [
        *out,
        text(
            LEFT + WIDTH * len(columns) / 2,
            bottom + 42,
            f"f, the Byzantine ones of {FEEDERS} feeders (p = 1)",
            "middle soft",
        ),
        f'<polyline class="line" points="18,{bottom + 66} 42,{bottom + 66}"/>',
        text(54, bottom + 70, f"{legend} {runs} runs a cell.", "soft"),
        "</svg>",
    ]


print("\n".join(draw(read())))
