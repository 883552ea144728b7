"""What a measurement is, and how all of them are printed."""

from __future__ import annotations

import os
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WHAT_CHARS, MEASURED_CHARS, TARGET_CHARS, BOUND_CHARS = 50, 32, 12, 76
CONTENTION_MAX = 1.15


@dataclass(frozen=True)
class Row:
    """One line of the table.  Without a target it informs; with `not_run` it tells why there is no figure."""

    what: str
    samples: tuple[float, ...] = ()
    unit: str = ""
    target: str = ""
    ok: bool | None = None
    bound: str = ""
    not_run: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def measured(self) -> str:
        if self.not_run:
            return "not run"
        middle, low, high = (_short(value) for value in (self.median, min(self.samples), max(self.samples)))
        spread = f" ({low} .. {high})" if len(self.samples) > 1 else ""
        return f"{middle} {self.unit}{spread}"

    @property
    def verdict(self) -> str:
        return {None: "", True: "ok", False: "MISS"}[self.ok]

    def as_json(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self.samples:
            values = {"median": self.median, "min": min(self.samples), "max": max(self.samples)}
        return values | {
            "what": self.what,
            "unit": self.unit,
            "target": self.target,
            "ok": self.ok,
            "boundBy": self.bound,
            "notRun": self.not_run,
            "samples": list(self.samples),
        }


def least(what: str, samples: Sequence[float], unit: str, limit: float, bound: str = "") -> Row:
    """The median is to be at least `limit`."""
    ok = statistics.median(samples) >= limit
    return Row(what, tuple(samples), unit, f">= {_short(limit)} {unit}", ok, bound)


def most(what: str, samples: Sequence[float], unit: str, limit: float, bound: str = "") -> Row:
    """The median is to be at most `limit`."""
    ok = statistics.median(samples) <= limit
    return Row(what, tuple(samples), unit, f"<= {_short(limit)} {unit}", ok, bound)


def told(what: str, samples: Sequence[float], unit: str, bound: str = "") -> Row:
    return Row(what, tuple(samples), unit, bound=bound)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _short(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def head() -> str:
    return _line("what", "measured: median (min .. max)", "target", "", "bound by")


def _line(what: str, measured: str, target: str, verdict: str, bound: str) -> str:
    left = f"{what:{WHAT_CHARS}} {measured:{MEASURED_CHARS}} {target:{TARGET_CHARS}} {verdict:5}"
    pieces = textwrap.wrap(bound, BOUND_CHARS) or [""]
    gap = " " * len(left)
    return "\n".join(
        f"{start} {piece}".rstrip() for start, piece in zip([left, *[gap] * 99], pieces, strict=False)
    )


def line(row: Row) -> str:
    return _line(row.what, row.measured, row.target, row.verdict, row.not_run or row.bound)


def load() -> float:
    return os.getloadavg()[0]


def noise(load_before: float, contended: Mapping[str, float], rows: Sequence[Row]) -> list[str]:
    """What a reader should know before trusting the figures; `contended` by section, 1.0 is alone."""
    said = []
    cores = os.cpu_count() or 1
    for section, factor in contended.items():
        if factor > CONTENTION_MAX:
            said.append(
                f"others used the machine around section {section}: a busy loop took {factor:.1f}x its CPU time"
            )
    if load_before > cores / 2:
        said.append(f"the machine was busy before the run: load {load_before:.1f} on {cores} cores")
    wide = [row.what for row in rows if len(row.samples) > 2 and max(row.samples) > 2 * min(row.samples) > 0]
    if wide:
        said.append(f"figures that differ by more than 2x within this run: {'; '.join(wide)}")
    return said
