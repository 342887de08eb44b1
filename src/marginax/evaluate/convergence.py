r"""Rank-normalised split R-hat, bulk and tail effective sample sizes (Vehtari et al., 2021) and E-BFMI, vectorised.

ArviZ computes the same numbers one quantity at a time, in about four times the time for a few hundred; here all share
their sorts and Fourier transforms. The tests compare the two. We differ in three places: a single chain has an R-hat
too (of its halves), a quantity that never changes has none (NaN, where ArviZ calls every draw effective), and one with
values that are not finite has R-hat infinity and ESS 0.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Num

_BLOCK_BYTES = 64 * 2**20  # quantities are taken in blocks of about this size
_LEAST_DRAWS = 4


@dataclass(frozen=True, eq=False)
class Convergence:
    """How well chains agree, one number per quantity.

    Attributes:
        r_hat: rank-normalised split R-hat, the larger of its bulk and tail (folded) versions.
        bulk_ess: effective draws for means and medians.
        tail_ess: effective draws for the 5% and 95% quantiles, the smaller of the two.
    """

    r_hat: Float[np.ndarray, " quantity"]
    bulk_ess: Float[np.ndarray, " quantity"]
    tail_ess: Float[np.ndarray, " quantity"]

    @property
    def worst_r_hat(self) -> float:
        """The largest, over quantities that vary; NaN if none does."""
        return float(np.max(self.r_hat, where=~np.isnan(self.r_hat), initial=-np.inf)) if self.varies else np.nan

    @property
    def smallest_bulk_ess(self) -> float:
        """The smallest, over quantities that vary; NaN if none does."""
        return float(np.min(self.bulk_ess, where=~np.isnan(self.bulk_ess), initial=np.inf)) if self.varies else np.nan

    @property
    def smallest_tail_ess(self) -> float:
        """The smallest, over quantities that vary; NaN if none does."""
        return float(np.min(self.tail_ess, where=~np.isnan(self.tail_ess), initial=np.inf)) if self.varies else np.nan

    @property
    def varies(self) -> bool:
        """Whether any quantity does."""
        return not bool(np.isnan(self.r_hat).all())


def measure_convergence(values: Num[np.ndarray, "chain draw quantity"]) -> Convergence:
    """R-hat and effective sample sizes of many quantities at once.

    >>> found = measure_convergence(np.random.default_rng(0).normal(size=(4, 500, 3)))
    >>> bool((found.r_hat < 1.02).all()), found.smallest_bulk_ess > 1000, found.smallest_tail_ess > 1000
    (True, True, True)
    """
    chains, draws, quantities = values.shape
    width = max(1, _BLOCK_BYTES // (16 * chains * draws)) if values.size else 1
    blocks = [_measure_block(values[:, :, start : start + width]) for start in range(0, quantities, width)]
    r_hat, bulk, tail = np.concatenate(blocks, axis=1) if blocks else np.zeros((3, 0))
    return Convergence(r_hat, bulk, tail)


def _measure_block(values: np.ndarray) -> np.ndarray:
    """Rows r_hat, bulk_ess and tail_ess of the quantities in `values`, axes (chain, draw, quantity)."""
    whole = np.ascontiguousarray(np.moveaxis(values, 2, 0), np.float64)  # (quantity, chain, draw)
    if whole.shape[2] < _LEAST_DRAWS:
        return np.full((3, len(whole)), np.nan)
    finite = np.asarray(np.isfinite(whole).all((1, 2)))
    constant = whole.max((1, 2)) == whole.min((1, 2))
    whole = np.where(finite[:, None, None], whole, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        split = _split(whole)
        ranked = _rank_normalise(split)
        folded = _rank_normalise(np.abs(split - np.median(split, axis=(1, 2), keepdims=True)))
        quantiles = np.quantile(whole, (0.05, 0.95), axis=(1, 2), keepdims=True)
        result = np.stack(
            [
                np.fmax(_plain_r_hat(ranked), _plain_r_hat(folded)),
                effective_size(ranked),
                np.minimum(*(effective_size((split <= quantile).astype(np.float64)) for quantile in quantiles)),
            ]
        )
    result[:, constant] = np.nan
    result[:, ~finite] = np.array([[np.inf], [0.0], [0.0]])
    return result


def _split(values: np.ndarray) -> np.ndarray:
    """Each chain as two, so that a drift shows as a disagreement; of an odd number the middle draw is left out."""
    half = values.shape[2] // 2
    return np.concatenate([values[:, :, :half], values[:, :, -half:]], axis=1)


def _rank_normalise(values: np.ndarray) -> np.ndarray:
    """Normal scores of the ranks over all chains: finite moments whatever the tails of the quantity."""
    from scipy import special

    flat = values.reshape(len(values), -1)
    total = flat.shape[1]
    scores = special.ndtri((np.arange(2 * total + 1) / 2 - 0.375) / (total + 0.25))  # ranks are whole or half numbers
    return scores[_doubled_ranks(flat)].reshape(values.shape)


def _doubled_ranks(values: np.ndarray) -> np.ndarray:
    """Twice the rank of each value in its row, from 1; equal values share the mean of theirs.

    >>> _doubled_ranks(np.array([[3.0, 1.0, 1.0, 7.0]])).tolist()
    [[6, 3, 3, 8]]
    """
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    place = np.arange(1, values.shape[1] + 1)
    edge = np.ones((len(values), 1), bool)
    differs = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(np.hstack([edge, differs]), place, 0), axis=1)
    last = np.where(np.hstack([differs, edge]), place, place[-1])
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(values.shape, np.int64)
    np.put_along_axis(ranks, order, first + last, axis=1)
    return ranks


def _plain_r_hat(values: np.ndarray) -> np.ndarray:
    num = values.shape[2]
    within = values.var(axis=2, ddof=1).mean(axis=1)
    between = values.mean(axis=2).var(axis=1, ddof=1)
    return np.sqrt(between / within + (num - 1) / num)


def effective_size(values: Float[np.ndarray, "quantity chain draw"]) -> Float[np.ndarray, " quantity"]:
    """Draws divided by the integrated autocorrelation time, summed over Geyer's initial monotone sequence."""
    _, chains, draws = values.shape
    total = chains * draws
    covariance = autocovariance(values).mean(axis=1)
    within = covariance[:, :1] * draws / (draws - 1)
    variance = covariance[:, :1] + (values.mean(axis=2).var(axis=1, ddof=1)[:, None] if chains > 1 else 0.0)
    correlation = 1.0 - (within - covariance) / variance
    correlation[:, 0] = 1.0
    # Sums of neighbours are positive and falling for a reversible chain: stop where noise makes one negative.
    last = max(0, -(-(draws - 4) // 2))
    pairs = correlation[:, 0 : 2 * last + 1 : 2] + correlation[:, 1 : 2 * last + 2 : 2]
    negative = pairs <= 0
    stop = np.where(negative.any(axis=1), negative.argmax(axis=1), last)
    falling = np.minimum.accumulate(pairs, axis=1)
    inside = np.arange(pairs.shape[1]) < stop[:, None]
    rest = np.take_along_axis(correlation, 2 * stop[:, None], axis=1)[:, 0]
    rest = np.where(negative.any(axis=1), np.maximum(rest, 0.0), rest)
    time = -1.0 + 2.0 * np.where(inside, falling, 0.0).sum(axis=1) + rest
    size = total / np.maximum(time, 1.0 / np.log10(total))
    return np.where(values.max((1, 2)) == values.min((1, 2)), float(total), size)


def autocovariance(values: Float[np.ndarray, "*batch draw"]) -> Float[np.ndarray, "*batch draw"]:
    """Of each series along the last axis, at every lag (divided by the length, not by the number of terms)."""
    num = values.shape[-1]
    length = 1 << (2 * num - 1).bit_length()  # zeros behind the series keep its end away from its beginning
    spectrum = np.fft.rfft(values - values.mean(axis=-1, keepdims=True), length, axis=-1)
    return np.fft.irfft(spectrum.real**2 + spectrum.imag**2, length, axis=-1)[..., :num] / num


def fraction_of_energy(energy: Num[np.ndarray, "chain step"]) -> Float[np.ndarray, " chain"]:
    """E-BFMI of each chain: mean squared change of the energy in a step over its variance (Betancourt, 2016).

    Near 1 if new momenta reach all energies at once; below 0.3 the chain walks slowly through them.

    >>> steps = np.random.default_rng(0).normal(size=(1, 1000))
    >>> fraction_of_energy(steps).round(1).tolist(), fraction_of_energy(np.cumsum(steps, axis=1)).round(1).tolist()
    ([2.0], [0.0])
    """
    energy = np.asarray(energy, np.float64)
    energy = np.where(np.isfinite(energy), energy, np.nan)
    known = np.isfinite(energy)
    change = np.diff(energy, axis=1) ** 2
    count, changes = known.sum(axis=1), np.isfinite(change).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.nansum(energy, axis=1) / count
        variance = np.nansum((energy - mean[:, None]) ** 2, axis=1) / (count - 1)
        return np.nansum(change, axis=1) / changes / variance
