"""Methods of the lab of functions, with budgets that fit a page."""

from collections.abc import Callable

from marginax import infer
from marginax.infer import AbstractMethod
from marginax.playground.protocol import Choice

Make = Callable[[Callable[[int], int], float], AbstractMethod]  # (count -> count at this budget, temperature)


def _trained(n: Callable[[int], int]) -> infer.MAP:
    return infer.MAP(num_epochs=n(2000))


def _stochastic(kind: Callable[..., AbstractMethod]) -> Make:
    return lambda n, t: kind(
        num_warmup=n(500), num_samples=n(50), thin=20, batch_size=None, temperature=t, training=_trained(n)
    )


_MAKE: dict[str, Make] = {
    "MAP": lambda n, t: _trained(n),
    "MLE": lambda n, t: infer.MLE(num_epochs=n(2000)),
    "Laplace": lambda n, t: infer.Laplace(training=_trained(n)),
    "VBLL": lambda n, t: infer.VBLL(num_epochs=n(3000), temperature=t),
    "SWAG": lambda n, t: infer.SWAG(batch_size=2, num_snapshots=n(40), training=_trained(n)),
    "DeepEnsemble": lambda n, t: infer.DeepEnsemble(num_members=8, member=_trained(n)),
    "AnchoredEnsemble": lambda n, t: infer.AnchoredEnsemble(num_members=8, num_epochs=n(2000)),
    "BatchEnsemble": lambda n, t: infer.BatchEnsemble(num_epochs=n(3000)),
    "MIMO": lambda n, t: infer.MIMO(num_epochs=n(3000)),
    "MCDropout": lambda n, t: infer.MCDropout(num_epochs=n(3000)),
    "GaussianDropout": lambda n, t: infer.GaussianDropout(num_epochs=n(3000)),
    "ConcreteDropout": lambda n, t: infer.ConcreteDropout(num_epochs=n(3000)),
    "DropConnect": lambda n, t: infer.DropConnect(num_epochs=n(3000)),
    "StochasticActivations": lambda n, t: infer.StochasticActivations(num_epochs=n(3000)),
    "Rank1VI": lambda n, t: infer.Rank1VI(num_epochs=n(3000)),
    "VI": lambda n, t: infer.VI(num_epochs=n(5000), temperature=t),
    "BayesByBackprop": lambda n, t: infer.BayesByBackprop(num_epochs=n(5000), temperature=t),
    "VariationalDropout": lambda n, t: infer.VariationalDropout(num_epochs=n(5000)),
    "IVON": lambda n, t: infer.IVON(num_epochs=n(3000), temperature=t),
    "SVGD": lambda n, t: infer.SVGD(num_epochs=n(2000)),
    "SGLD": _stochastic(infer.SGLD),
    "PreconditionedSGLD": _stochastic(infer.PreconditionedSGLD),
    "SGHMC": _stochastic(infer.SGHMC),
    "SGNHT": _stochastic(infer.SGNHT),
    "CyclicalSGMCMC": lambda n, t: infer.CyclicalSGMCMC(
        sampler=infer.SGHMC(num_samples=n(40), thin=20, batch_size=None, temperature=t, training=_trained(n)),
        num_cycles=4,
        cycle_length=n(1000),
    ),
    "MILE": lambda n, t: infer.MILE(
        num_members=4,
        num_epochs=n(1000),
        sampler=infer.MCLMC(num_warmup=n(1000), num_samples=n(50), thin=10, energy_variance=2e-4),
    ),
    "MCLMC": lambda n, t: infer.MCLMC(
        num_warmup=n(2000), num_samples=n(200), thin=10, energy_variance=5e-4, temperature=t
    ),
    "MALA": lambda n, t: infer.MALA(num_warmup=n(1000), num_samples=n(200), thin=5, temperature=t),
    "Barker": lambda n, t: infer.Barker(num_warmup=n(1000), num_samples=n(200), thin=5, temperature=t),
    "MetropolisHastings": lambda n, t: infer.MetropolisHastings(
        num_warmup=n(4000), num_samples=n(200), thin=20, temperature=t
    ),
    "HMC": lambda n, t: infer.HMC(num_warmup=n(300), num_samples=n(200), max_leapfrog=64, temperature=t),
    "AdjustedMCLMC": lambda n, t: infer.AdjustedMCLMC(
        num_warmup=n(300), num_samples=n(200), max_steps=64, temperature=t
    ),
    "NUTS": lambda n, t: infer.NUTS(num_warmup=n(300), num_samples=n(200), max_tree_depth=6, temperature=t),
    "ParallelTempering": lambda n, t: infer.ParallelTempering(
        num_warmup=n(300), num_samples=n(200), thin=1, num_temperatures=6, temperature=t
    ),
}

TEMPERED = tuple(name for name, make in _MAKE.items() if make(lambda n: n, 0.5) != make(lambda n: n, 1.0))
METHODS = tuple(Choice(name, name) for name in _MAKE)
# many networks already: one run of them
ENSEMBLES = ("DeepEnsemble", "AnchoredEnsemble", "BatchEnsemble", "MIMO", "Rank1VI", "SVGD", "MILE")


def method_of(name: str, *, budget: float = 1.0, temperature: float = 1.0) -> AbstractMethod:
    """A method of the catalogue with a budget for a page.

    Args:
        name: as in the catalogue.
        budget: a factor of all numbers of steps.
        temperature: of the posterior, for methods that have one.

    >>> method = method_of("HMC", budget=0.1)
    >>> method.num_warmup, method.num_samples
    (30, 20)
    """
    return _MAKE[name](lambda steps: max(4, round(steps * budget)), temperature)
