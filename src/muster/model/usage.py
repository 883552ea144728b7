"""What an agent's conversation with its model has cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from muster.model.as_stored import json_reader

Amount = Annotated[int, Meta(ge=0, le=1 << 53)]


class Usage(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    input_tokens: Amount = 0
    """All that the model read, what its provider had cached included."""
    cached_tokens: Amount = 0
    """Those of them that came from the provider's cache."""
    output_tokens: Amount = 0
    cost_microusd: Amount | None = None
    """Millionths of a dollar by the CLI's own word; None where it names no price."""
    estimated: bool = False
    """Counted from single messages, because the process was gone before it could sum up."""
    priced: bool = False
    """The dollars are by our own table of prices, because the CLI names none."""

    def plus(self, other: Usage) -> Usage:
        costs = [usage.cost_microusd for usage in (self, other) if usage.cost_microusd is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_microusd=sum(costs) if costs else None,
            estimated=self.estimated or other.estimated,
        )

    def holds(self, other: Usage) -> bool:
        """Whether this total of a conversation may be a later one."""
        return self.input_tokens >= other.input_tokens and self.output_tokens >= other.output_tokens

    def since(self, mark: Usage | None) -> Usage:
        """What was added to a conversation's total since it stood at `mark`.

        A total below its mark has begun anew, so it counts whole.
        """
        if mark is None or any(
            (now or 0) < (before or 0)
            for now, before in (
                (self.input_tokens, mark.input_tokens),
                (self.output_tokens, mark.output_tokens),
                (self.cost_microusd, mark.cost_microusd),
            )
        ):
            return self
        cost = None if self.cost_microusd is None else self.cost_microusd - (mark.cost_microusd or 0)
        return Usage(
            input_tokens=self.input_tokens - mark.input_tokens,
            cached_tokens=max(0, self.cached_tokens - mark.cached_tokens),
            output_tokens=self.output_tokens - mark.output_tokens,
            cost_microusd=cost,
            estimated=self.estimated,
            priced=self.priced,
        )

    def at(self, price: Price | None) -> Usage:
        """With its dollars by this price, where there is one."""
        if price is None:
            return self
        fresh = max(0, self.input_tokens - self.cached_tokens)
        cost = fresh * price.input + self.cached_tokens * price.cached + self.output_tokens * price.output
        return replace(self, cost_microusd=round(cost), priced=True)


class Price(NamedTuple):
    """Dollars for a million tokens."""

    input: float
    cached: float
    output: float


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """By the longest name in the table that the model's begins with."""
    known = max((name for name in prices if model.startswith(name)), key=len, default=None)
    return None if known is None else prices[known]


def total(usages: Iterable[Usage]) -> Usage | None:
    """All together: an estimate where one of them is one."""
    found = list(usages)
    if not found:
        return None
    costs = [usage.cost_microusd for usage in found if usage.cost_microusd is not None]
    return Usage(
        input_tokens=sum(usage.input_tokens for usage in found),
        cached_tokens=sum(usage.cached_tokens for usage in found),
        output_tokens=sum(usage.output_tokens for usage in found),
        cost_microusd=sum(costs) if costs else None,
        estimated=any(usage.estimated for usage in found),
        priced=any(usage.priced for usage in found),
    )


_read = json_reader(Usage)


def usage_of(text: str | None) -> Usage | None:
    """Reads what a row holds."""
    usage: Usage | None = _read(text) if text else None
    return usage


def usage_json(usage: Usage | None) -> str | None:
    return msgspec.json.encode(usage).decode() if usage else None
