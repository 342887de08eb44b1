"""What chains say about themselves: numbers, and in words what is wrong and what to try."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from marginax.evaluate.convergence import Convergence
from marginax.evaluate.remedies import PYTHON, Remedies
from marginax.evaluate.stability import MOST_NATS

MOST_R_HAT = 1.05
MOST_R_HAT_OF_STABLE = 1.1
"""R-hat is the spread over all chains by that within one: above this the epistemic part of a chain is off by a tenth,
which the noise of the targets may hide from the predictive density."""

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
        stability: how much the same fit with another seed would change log predictive densities, in nats: the question
            where chains are meant to differ. None where there is nothing to predict.
        trained_apart: whether each chain began where its own training ended, and so is meant to differ from the others.
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
    stability: float | None = None
    trained_apart: bool = False
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
        if self.stability is not None:
            lines.append(stability_line(self.stability))
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
        apart = self.trained_apart and len(self.modes) > 1
        agree = self.predictions is not None and not _disagrees(self.predictions) and (apart or len(self.modes) < 2)
        if agree and _disagrees(self.weights) and not self.frozen:
            notes.append(
                f"weights differ between chains (R-hat {self.weights.worst_r_hat:.2f}) and predictions agree: networks "
                "have symmetries (hidden units may trade places), so trust the predictions' numbers"
            )
        if self.predictions is not None and self._excused and (apart or _disagrees(self.predictions) or self._few):
            notes.append(
                f"{'members' if self.trained_apart else 'chains'} differ (R-hat {self.predictions.worst_r_hat:.2f}, "
                f"{self._least_ess:.0f} effective draws of {self.num_chains * self.num_draws}) by less than would "
                f"change an answer: their mixture is known to {self.stability:.2g} nats"
            )
        if self.num_chains == 1:
            notes.append("a single chain cannot show that it missed a mode: several can")
        return tuple(notes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong, and what to try."""
        return self.warn()

    def warn(self, words: Remedies = PYTHON) -> tuple[str, ...]:
        """The warnings, with what to try in the words of a place."""
        agreement = [*self._about_frozen(words), *self._about_mixture(words), *self._about_agreement(words)]
        return (*agreement, *self._about_size(words), *self._about_sampler(words))

    @property
    def _is_unstable(self) -> bool:
        return self.stability is not None and not self.stability <= MOST_NATS

    @property
    def _excused(self) -> bool:
        """Whether a disagreement in predictions changes no answer."""
        if self.stability is None or self._is_unstable or self.predictions is None or self.frozen:
            return False
        return self.trained_apart or self.predictions.worst_r_hat <= MOST_R_HAT_OF_STABLE

    @property
    def _least_ess(self) -> float:
        seen = self.weights if self.predictions is None else self.predictions
        return min(seen.smallest_bulk_ess, seen.smallest_tail_ess)

    @property
    def _few(self) -> bool:
        return self._least_ess < LEAST_ESS

    def _longer(self, words: Remedies) -> str:
        return f"run longer ({words.setting('num_samples', 2 * self.num_draws)}, and num_warmup likewise)"

    def _about_frozen(self, words: Remedies) -> list[str]:
        if not self.frozen:
            return []
        return [
            f"{_chains(self.frozen)} did not move: every draw is (nearly) the same; lower the step size, adapt for "
            f"longer (num_warmup), or start elsewhere ({words.start})"
        ]

    def _about_mixture(self, words: Remedies) -> list[str]:
        if not self._is_unstable or self.stability is None or self.frozen:
            return []
        text = unstable_text(self.stability, self.num_chains, words)
        if self.trained_apart:
            return [text]
        said = len(self.modes) > 1 or self.predictions is None or _disagrees(self.predictions)
        return [] if said else [f"{text}; or {self._longer(words)}"]

    def _about_agreement(self, words: Remedies) -> list[str]:
        texts = []
        seen = self.weights if self.predictions is None else self.predictions
        what = "weights" if self.predictions is None else "predictions"
        r_hat = f"R-hat {seen.worst_r_hat:.2f}"
        if self._is_unstable:
            r_hat += f"; another seed would change log predictive densities by {self.stability:.2g} nats"
        if len(self.modes) > 1 and not self.trained_apart:
            groups = " | ".join(", ".join(map(str, group)) for group in self.modes)
            where = f"disagree in their {what} ({r_hat})" if _disagrees(seen) else "stay at separate log densities"
            texts.append(
                f"chains {where}: they sit in {len(self.modes)} separate modes (chains {groups}), none crosses over, "
                "so the modes' weights are those of the starting points; run more chains "
                f"({words.chains(4 * self.num_chains)}), or a method that moves between modes "
                f"({words.methods('CyclicalSGMCMC', 'ParallelTempering')})"
            )
        elif _disagrees(seen) and not self.frozen and not self._excused and not self.trained_apart:
            who = "the halves of the chain" if self.num_chains == 1 else "chains"
            text = f"{who} disagree in their {what} ({r_hat}): {self._longer(words)} or start elsewhere ({words.start})"
            if self.predictions is None:
                text += "; weights have symmetries, so compare predictions too: diagnose_chains(posterior, x)"
            texts.append(text)
        apart = len(self.modes) > 1 or self.trained_apart
        if self.scales is not None and _disagrees(self.scales) and not self.frozen and not apart:
            texts.append(
                f"chains disagree about noise or prior scales (R-hat {self.scales.worst_r_hat:.2f}): "
                f"{self._longer(words)}, fix a scale, or give it a tighter prior"
            )
        return texts

    def _about_size(self, words: Remedies) -> list[str]:
        if not self._few or self._excused or self.trained_apart:
            return []
        if self.frozen or len(self.modes) > 1:  # said already, and the cause of it
            return []
        seen = self.weights if self.predictions is None else self.predictions
        text = (
            f"few effective draws of {'weights' if self.predictions is None else 'predictions'} "
            f"({seen.smallest_bulk_ess:.0f} in the bulk, {seen.smallest_tail_ess:.0f} in the tails, of "
            f"{self.num_chains * self.num_draws}): {self._longer(words)}"
        )
        if self.acceptance is not None and self.acceptance.mean() > (0.97 if self._is_hamiltonian else 0.9):
            text += (
                f"; acceptance is high ({self.acceptance.mean():.2f}), so longer steps (lower target_acceptance, "
                "larger step_size) would explore faster"
            )
        return [text]

    def _about_sampler(self, words: Remedies) -> list[str]:
        texts = []
        if self.num_diverging is not None and self.num_diverging.any():
            count, total = int(self.num_diverging.sum()), self.num_steps * self.num_chains
            texts.append(
                f"{count} of {total} trajectories diverged ({count / total:.2%}): regions of high curvature are left "
                f"out; take shorter steps ({words.setting('target_acceptance', 0.95)}), or change the model there: "
                "reparameterise, fix a learned scale, another prior"
            )
        if self.e_bfmi is not None and (self.e_bfmi < LEAST_E_BFMI).any():
            slow = tuple(np.flatnonzero(self.e_bfmi < LEAST_E_BFMI).tolist())
            texts.append(
                f"low E-BFMI ({np.nanmin(self.e_bfmi):.2f} in {_chains(slow)}): energy is explored slowly, which heavy "
                "tails or a funnel (a learned prior scale) cause; reparameterise, use lighter tails, or run longer"
            )
        excess = None if self.trained_apart else self.energy_excess  # members of an ensemble stay where they are
        if excess is not None and (excess > MOST_ENERGY_EXCESS).any():
            rough = tuple(np.flatnonzero(excess > MOST_ENERGY_EXCESS).tolist())
            texts.append(
                f"energy errors have up to {excess.max():.0f} times the variance asked for "
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


def stability_line(nats: float) -> str:
    """The number, and where it matters."""
    return (
        f"mixture    another seed would change log predictive densities by {nats:.2g} nats (fine below {MOST_NATS:g})"
    )


def unstable_text(nats: float, num_chains: int, words: Remedies) -> str:
    """What another seed would change, and how many chains would mend it; the error falls with their square root.

    >>> print(unstable_text(0.2, 10, PYTHON))
    the answer depends on the seed: another would change log predictive densities by 0.2 nats (probabilities by 22%); 40
    chains would bring it to 0.1 nats (num_chains=40)
    """
    text = f"the answer depends on the seed: another would change log predictive densities by {nats:.2g} nats"
    wanted = math.ceil(num_chains * (min(nats, 10.0) / MOST_NATS) ** 2 - 1e-9)
    if wanted > 100:
        return f"{text}; run more chains ({words.chains(max(4 * num_chains, 10))}), or another method"
    change = f"(probabilities by {math.expm1(nats):.0%})"
    return f"{text} {change}; {wanted} chains would bring it to {MOST_NATS:g} nats ({words.chains(wanted)})"


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
