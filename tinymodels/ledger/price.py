"""What a request costs: tokens found in the cache, tokens computed, tokens written."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bill:
    """US dollars, by what they were paid for."""

    hit: float
    miss: float
    output: float

    @property
    def total(self) -> float:
        return self.hit + self.miss + self.output


def bill(
    hit_tokens: int,
    miss_tokens: int,
    output_tokens: int,
    *,
    hit_price: float,
    miss_price: float,
    output_price: float,
) -> Bill:
    """A request's bill. Prices are US dollars per million tokens, and all three are required:

    where one is not published (V4.1's miss price), whoever calls must assume one and say so.
    Raises ValueError for a price that is None or negative and for a negative number of tokens.
    """
    tokens = dict(hit_tokens=hit_tokens, miss_tokens=miss_tokens, output_tokens=output_tokens)
    for name, count in tokens.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"{name} is {count!r}; it must be an integer >= 0")
    prices = dict(hit_price=hit_price, miss_price=miss_price, output_price=output_price)
    for name, price in prices.items():
        if price is None:
            raise ValueError(f"{name} is not known; assume one, and label the bill as assumed")
        if isinstance(price, bool) or not isinstance(price, int | float) or not price >= 0:
            raise ValueError(f"{name} is {price!r}; it must be a number of dollars >= 0")
    return Bill(
        hit=hit_tokens * hit_price / 1e6,
        miss=miss_tokens * miss_price / 1e6,
        output=output_tokens * output_price / 1e6,
    )
