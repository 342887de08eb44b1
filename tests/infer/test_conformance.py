"""Every method keeps the promises that all methods make. A new method is one new row."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.infer import (
    HMC,
    IVON,
    LBFGS,
    MALA,
    MAP,
    MCLMC,
    MILE,
    MIMO,
    MLE,
    NUTS,
    SGD,
    SGHMC,
    SGLD,
    SGNHT,
    SVGD,
    SWAG,
    VBLL,
    VI,
    AbstractMethod,
    Adam,
    AdjustedMCLMC,
    AnchoredEnsemble,
    BatchEnsemble,
    BayesByBackprop,
    ConcreteDropout,
    ControlVariates,
    CyclicalSGMCMC,
    DeepEnsemble,
    DropConnect,
    EarlyStopping,
    Flipout,
    Flow,
    FullRank,
    GaussianDropout,
    Laplace,
    LowRank,
    MCDropout,
    MetropolisHastings,
    MinibatchMetropolis,
    ParallelTempering,
    PreconditionedSGLD,
    Rank1VI,
    StickingTheLanding,
    StochasticActivations,
    VariationalDropout,
)
from marginax.infer.catalogue import catalogue
from marginax.testing import check_method


@dataclass(frozen=True)
class Case:
    """A method with a small budget, and how to run it."""

    name: str
    method: AbstractMethod
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """A model and data of which nothing is known."""

    model: mx.Model
    data: tuple[np.ndarray, np.ndarray]


def curve() -> Problem:
    """A regression on one input."""
    x = np.random.default_rng(0).normal(size=(25, 1))
    network = mx.nets.MLP(in_size=1, hidden=(5,), out_size=1, activation=jnp.tanh, key=0)
    return Problem(mx.Model(network, mx.likelihoods.Gaussian()), (x, np.sin(2 * x[:, 0])))


def dropout() -> Problem:
    """A classifier whose training is random beyond its batches."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
    network = mx.nets.MLP(in_size=2, hidden=(6,), out_size=2, activation=jnp.tanh, dropout=0.2, key=0)
    return Problem(mx.Model(network, mx.likelihoods.Categorical()), (x, y))


IMPATIENT = {"problem": curve(), "hooks": (EarlyStopping(0.3, patience=2, every_epochs=2),)}

LAYERS = {"any_network": False}  # networks made of functions have no layers to disturb

CASES = [
    Case("MAP", MAP(num_epochs=10, batch_size=8)),
    Case("MAP, stopped early", MAP(num_epochs=40, batch_size=None, optimiser=Adam(0.2)), IMPATIENT),
    Case("MLE", MLE(num_epochs=20, batch_size=None, optimiser=SGD(0.05))),
    Case("DeepEnsemble", DeepEnsemble(3, MAP(num_epochs=20, batch_size=None))),
    Case("MCDropout", MCDropout(0.2, num_epochs=20, batch_size=None), LAYERS),
]
SLOW = [
    Case("MCLMC", MCLMC(num_warmup=30, num_samples=10, thin=3)),
    Case("AnchoredEnsemble", AnchoredEnsemble(3, num_epochs=20, batch_size=None)),
    Case("VI", VI(num_epochs=10, batch_size=8)),
    Case("VI, low rank, flipout", VI(LowRank(2), estimator=Flipout(), num_epochs=10, batch_size=8)),
    Case("VI, full rank", VI(FullRank(), divergence=StickingTheLanding(), num_epochs=20, batch_size=None)),
    Case("VI, flow", VI(Flow(), num_epochs=20, batch_size=None)),
    Case("BayesByBackprop", BayesByBackprop(num_epochs=10, batch_size=8)),
    Case("VariationalDropout", VariationalDropout(num_epochs=10, batch_size=8)),
    Case("VBLL", VBLL(num_epochs=20, batch_size=None), {"any_network": False}),
    Case("IVON", IVON(num_epochs=10, batch_size=8)),
    Case("SWAG", SWAG(rank=3, num_snapshots=6, every=4, batch_size=4, training=MAP(num_epochs=5))),
    Case("SVGD", SVGD(4, num_epochs=20, batch_size=None)),
    Case("MCDropout of the network's own", MCDropout(num_epochs=20, batch_size=None), LAYERS | {"problem": dropout()}),
    Case("GaussianDropout", GaussianDropout(num_epochs=20, batch_size=None), LAYERS),
    Case("ConcreteDropout", ConcreteDropout(num_epochs=20, batch_size=None), LAYERS),
    Case("DropConnect", DropConnect(num_epochs=20, batch_size=None), LAYERS),
    Case("StochasticActivations", StochasticActivations(num_epochs=20, batch_size=None), LAYERS),
    Case("BatchEnsemble", BatchEnsemble(num_members=3, num_epochs=8, batch_size=8), LAYERS),
    Case("Rank1VI", Rank1VI(num_members=3, num_epochs=8, batch_size=8), LAYERS),
    Case("MIMO", MIMO(num_members=2, num_epochs=8, batch_size=8), LAYERS),
    Case("DeepEnsemble of VI", DeepEnsemble(3, VI(num_epochs=20, batch_size=None))),
    Case("MAP with dropout", MAP(num_epochs=20, batch_size=None), {"problem": dropout()}),
    Case("MAP, L-BFGS", MAP(num_epochs=12, batch_size=None, optimiser=LBFGS())),
    Case("Laplace", Laplace(training=MAP(num_epochs=20, batch_size=None)), {"any_network": False}),
    Case("MALA", MALA(num_warmup=30, num_samples=10, thin=3)),
    Case("SGHMC", SGHMC(step_size=1e-5, num_warmup=10, num_samples=10, thin=3, batch_size=8)),
    Case("NUTS", NUTS(num_warmup=20, num_samples=20, max_tree_depth=3)),
    Case("HMC", HMC(num_warmup=20, num_samples=20, max_leapfrog=8)),
    Case("MetropolisHastings", MetropolisHastings(num_warmup=50, num_samples=20, thin=3)),
    Case("AdjustedMCLMC", AdjustedMCLMC(num_warmup=20, num_samples=20, max_steps=8)),
    Case("ParallelTempering", ParallelTempering(num_warmup=20, num_samples=10, thin=2, num_temperatures=3)),
    Case("SGLD", SGLD(num_warmup=10, num_samples=10, thin=3, batch_size=8)),
    Case("SGLD, corrected", SGLD(1e-4, num_samples=10, thin=3, batch_size=8, correction=MinibatchMetropolis())),
    Case(
        "SGLD, control variates",
        SGLD(num_warmup=10, num_samples=10, thin=3, batch_size=8, variance_reduction=ControlVariates()),
    ),
    Case("PreconditionedSGLD", PreconditionedSGLD(num_warmup=10, num_samples=10, thin=3, batch_size=8)),
    Case("SGNHT", SGNHT(num_warmup=10, num_samples=10, thin=3, batch_size=8)),
    Case(
        "CyclicalSGMCMC",
        CyclicalSGMCMC(SGHMC(num_samples=12, batch_size=8), num_cycles=3, cycle_length=20),
    ),
    Case("MILE", MILE(3, num_epochs=20, sampler=MCLMC(num_warmup=30, num_samples=10, thin=3))),
]


BUDGET = {"num_epochs": 20, "batch_size": None, "num_warmup": 20, "num_samples": 10, "thin": 2}


def small(method: AbstractMethod) -> AbstractMethod:
    """A method with a small budget, by the names of its fields."""
    names = {field.name for field in dataclasses.fields(method)}
    return dataclasses.replace(method, **{name: value for name, value in BUDGET.items() if name in names})


# A method that is in the catalogue and has no row here is checked all the same.
KNOWN = {type(case.method) for case in CASES + SLOW}
SLOW += [Case(e.name, small(e.method), {"any_network": False}) for e in catalogue() if type(e.method) not in KNOWN]


def name_of(case: Case) -> str:
    return case.name


DEFAULT = ("MAP", "DeepEnsemble")  # the others need a minute or two in all
PARAMS = [pytest.param(case, marks=[] if case.name in DEFAULT else pytest.mark.slow) for case in CASES + SLOW]


@pytest.mark.parametrize("case", PARAMS, ids=name_of)
def test_method_conforms(case):
    check_method(case.method, **case.options)


def test_the_case_that_stops_early_does():
    case = next(case for case in CASES if case.name == "MAP, stopped early")
    problem = case.options["problem"]
    posterior = mx.fit(problem.model, problem.data, case.method, key=0, num_chains=3, hooks=case.options["hooks"])
    assert posterior.record.num_steps["train"] < 40


def test_a_method_without_a_row_gets_a_small_budget():
    assert small(mx.infer.SGHMC()) == mx.infer.SGHMC(num_warmup=20, num_samples=10, thin=2, batch_size=None)
    assert {entry.name for entry in catalogue()} <= {type(case.method).__name__ for case in CASES + SLOW}


def test_a_single_chain_cannot_be_checked():
    with pytest.raises(ValueError, match="num_chains must be at least 2"):
        check_method(MAP(num_epochs=1), num_chains=1)
