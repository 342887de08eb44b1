"""What chains say about themselves: numbers, and in words what is wrong and what to try."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from marginax.evaluate.convergence import Convergence

MOST_R_HAT = 1.05
LEAST_ESS = 100
LEAST_E_BFMI = 0.3
MOST_ENERGY_EXCESS = 100.0


@dataclass(frozen=True, eq=False)
class ChainDiagnostics:
    """Do the chains agree, and did the sampler work? Print it, or read the numbers.

    What the sampler did not record is None: stochastic-gradient samplers, for example, accept and reject nothing.

    Attributes:
        num_chains: how many there are.
        num_draws: kept draws per chain.
        weights: agreement in some weights, evenly spaced over all. Networks have symmetries, so chains may differ here
            and be right.
        scales: agreement in the likelihood's and the prior's own few unknowns, which have no such symmetry.
        predictions: agreement in the network's outputs at inputs.
        frozen: chains that did not move.
        modes: groups of chains that stay apart from each other; a single group if none do.
        log_density: mean of each chain.
        acceptance: mean of each chain.
        num_leapfrog: mean number of leapfrog steps per trajectory, of each chain.
        num_diverging: trajectories of each chain that diverged.
        num_steps: steps behind these counts and means, per chain.
        energy: mean of each chain.
        e_bfmi: energy's fraction of missing information, of each chain; below 0.3 energies are explored slowly.
        energy_error: standard deviation of an unadjusted sampler's energy error in a step, of each chain.
        energy_excess: its variance over the one that was asked for, of each chain.
    """

    num_chains: int
    num_draws: int
    weights: Convergence
    scales: Convergence | None = None
    predictions: Convergence | None = None
    frozen: tuple[int, ...] = ()
    modes: tuple[tuple[int, ...], ...] = ()
    log_density: Float[np.ndarray, " chain"] | None = None
    acceptance: Float[np.ndarray, " chain"] | None = None
    num_leapfrog: Float[np.ndarray, " chain"] | None = None
    num_diverging: Int[np.ndarray, " chain"] | None = None
    num_steps: int = 0
    energy: Float[np.ndarray, " chain"] | None = None
    e_bfmi: Float[np.ndarray, " chain"] | None = None
    energy_error: Float[np.ndarray, " chain"] | None = None
    energy_excess: Float[np.ndarray, " chain"] | None = None

    def __str__(self) -> str:
        notes = [f"note       {text}" for text in self.notes]
        return "\n".join([*self.lines, *notes, *(f"warning: {text}" for text in self.warnings)])

    def __repr__(self) -> str:
        return str(self)

    @property
    def lines(self) -> tuple[str, ...]:
        """The numbers, a line per group of quantities and one about the sampler."""
        groups = (("weights", self.weights), ("scales", self.scales), ("predictions", self.predictions))
        lines = [
            f"{name:<10} worst R-hat {found.worst_r_hat:.3f}, smallest ESS {found.smallest_bulk_ess:.0f} (bulk), "
            f"{found.smallest_tail_ess:.0f} (tail)"
            for name, found in groups
            if found is not None
        ]
        parts = []
        if self.acceptance is not None:
            parts.append(f"acceptance {self.acceptance.mean():.2f}")
        if self.num_leapfrog is not None:
            parts.append(f"{self.num_leapfrog.mean():.1f} leapfrog steps")
        if self.num_diverging is not None:
            parts.append(f"{self.num_diverging.sum()} of {self.num_steps * self.num_chains} diverged")
        if self.e_bfmi is not None:
            parts.append(f"smallest E-BFMI {np.min(self.e_bfmi):.2f}")
        if self.energy_error is not None:
            parts.append(f"energy error {self.energy_error.mean():.2g} per step")
        return (*lines, *([f"sampler    {', '.join(parts)}"] if parts else []))

    @property
    def notes(self) -> tuple[str, ...]:
        """What looks odd and is not wrong, and what cannot be known."""
        notes = []
        agree = self.predictions is not None and not _disagrees(self.predictions) and len(self.modes) < 2
        if agree and _disagrees(self.weights) and not self.frozen:
            notes.append(
                f"weights differ between chains (R-hat {self.weights.worst_r_hat:.2f}) and predictions agree: networks "
                "have symmetries (hidden units may trade places), so trust the predictions' numbers"
            )
        if self.num_chains == 1:
            notes.append("a single chain cannot show that it missed a mode: num_chains=4 can")
        return tuple(notes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong, and what to try."""
        return (*self._about_agreement(), *self._about_size(), *self._about_sampler())

    def _about_agreement(self) -> list[str]:
        texts = []
        if self.frozen:
            texts.append(
                f"{_chains(self.frozen)} did not move: every draw is (nearly) the same; lower the step size, adapt for "
                "longer (num_warmup), or start elsewhere (init=)"
            )
        seen = self.weights if self.predictions is None else self.predictions
        what = "weights" if self.predictions is None else "predictions"
        r_hat = f"R-hat {seen.worst_r_hat:.2f}"
        if len(self.modes) > 1:
            groups = " | ".join(", ".join(map(str, group)) for group in self.modes)
            where = f"disagree in their {what} ({r_hat})" if _disagrees(seen) else "stay at separate log densities"
            texts.append(
                f"chains {where}: they sit in {len(self.modes)} separate modes (chains {groups}), none crosses over, "
                "so the modes' weights are those of the starting points; run more chains, or a method that moves "
                "between modes (CyclicalSGMCMC, ParallelTempering)"
            )
        elif _disagrees(seen) and not self.frozen:
            who = "the halves of the chain" if self.num_chains == 1 else "chains"
            text = f"{who} disagree in their {what} ({r_hat}): run longer (num_warmup, num_samples) or start elsewhere"
            if self.predictions is None:
                text += "; weights have symmetries, so compare predictions too: diagnose_chains(posterior, x)"
            texts.append(text)
        if self.scales is not None and _disagrees(self.scales) and not self.frozen and len(self.modes) < 2:
            texts.append(
                f"chains disagree about noise or prior scales (R-hat {self.scales.worst_r_hat:.2f}): run longer, fix a "
                "scale, or give it a tighter prior"
            )
        return texts

    def _about_size(self) -> list[str]:
        seen = self.weights if self.predictions is None else self.predictions
        what = "weights" if self.predictions is None else "predictions"
        bulk, tail = seen.smallest_bulk_ess, seen.smallest_tail_ess
        if not min(bulk, tail) < LEAST_ESS or self.frozen or len(self.modes) > 1:  # said already, and the cause of it
            return []
        text = (
            f"few effective draws of {what} ({bulk:.0f} in the bulk, {tail:.0f} in the tails, of "
            f"{self.num_chains * self.num_draws}): run longer"
        )
        if self.acceptance is not None and self.acceptance.mean() > (0.97 if self._is_hamiltonian else 0.9):
            text += (
                f"; acceptance is high ({self.acceptance.mean():.2f}), so longer steps (lower target_acceptance, "
                "larger step_size) would explore faster"
            )
        return [text]

    def _about_sampler(self) -> list[str]:
        texts = []
        if self.num_diverging is not None and self.num_diverging.any():
            count, total = int(self.num_diverging.sum()), self.num_steps * self.num_chains
            texts.append(
                f"{count} of {total} trajectories diverged ({count / total:.2%}): regions of high curvature are left "
                "out; raise target_acceptance (0.95), or change the model there: reparameterise, fix a learned scale, "
                "another prior"
            )
        if self.e_bfmi is not None and (self.e_bfmi < LEAST_E_BFMI).any():
            slow = tuple(np.flatnonzero(self.e_bfmi < LEAST_E_BFMI).tolist())
            texts.append(
                f"low E-BFMI ({np.nanmin(self.e_bfmi):.2f} in {_chains(slow)}): energy is explored slowly, which heavy "
                "tails or a funnel (a learned prior scale) cause; reparameterise, use lighter tails, or run longer"
            )
        if self.energy_excess is not None and (self.energy_excess > MOST_ENERGY_EXCESS).any():
            rough = tuple(np.flatnonzero(self.energy_excess > MOST_ENERGY_EXCESS).tolist())
            texts.append(
                f"energy errors have up to {self.energy_excess.max():.0f} times the variance asked for "
                f"({_chains(rough)}): regions of high curvature, as the neck of a funnel, are passed with "
                "steps too long for them; change the model there (reparameterise, fix a learned scale), or "
                "compare with NUTS"
            )
        if self.acceptance is not None:
            least = 0.5 if self._is_hamiltonian else 0.1
            moving = [c for c in range(self.num_chains) if c not in self.frozen]
            low = tuple(c for c in moving if self.acceptance[c] < least)
            if low:
                texts.append(
                    f"low acceptance ({self.acceptance[list(low)].min():.2f} in {_chains(low)}): steps are too long; "
                    "adapt for longer (num_warmup), or choose a smaller step_size"
                )
        return texts

    @property
    def _is_hamiltonian(self) -> bool:
        """Trajectories of several steps want a high acceptance; single steps (random walk, Langevin) a lower one."""
        return self.num_leapfrog is not None and bool(self.num_leapfrog.mean() > 1.5)


def _disagrees(found: Convergence) -> bool:
    return bool(found.worst_r_hat > MOST_R_HAT)


def _chains(numbers: tuple[int, ...]) -> str:
    """Chains by number, as people say it.

    >>> _chains((2,)), _chains((0, 1, 3))
    ('chain 2', 'chains 0, 1 and 3')
    """
    if len(numbers) == 1:
        return f"chain {numbers[0]}"
    return f"chains {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
