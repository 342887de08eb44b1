"""marginax: Bayesian deep learning on JAX.

Take a network, say what you believe (likelihood and prior), choose a method, get a posterior over networks whose
predictions carry honest uncertainty.
"""

from typing import TYPE_CHECKING, Any

from marginax import data, nets
from marginax._extras import require
from marginax.files import register, register_function, register_on_demand
from marginax.model import All, Density, GaussianProcess, LastLayer, Model, Paths, Program, likelihoods

if TYPE_CHECKING:
    from marginax import curvature, infer, latent, launch, meta, posterior, predict, priors, self_supervised
    from marginax.infer import LargestVariance, fit, resume, use_cores
    from marginax.posterior import augment, load
    from marginax.self_supervised import SelfSupervised

__version__ = "0.1.0"

# They define hundreds of classes, or bring SciPy and friends, so they wait until somebody asks.
_ON_DEMAND = (
    "calibrate",
    "continual",
    "curvature",
    "decide",
    "estimators",
    "evaluate",
    "infer",
    "latent",
    "launch",
    "meta",
    "plot",
    "posterior",
    "predict",
    "priors",
    "report",
    "reproduce",
    "self_supervised",
    "testing",
)
_FROM = {
    "LargestVariance": "infer",
    "SelfSupervised": "self_supervised",
    "augment": "posterior",
    "fit": "infer",
    "load": "posterior",
    "resume": "infer",
    "use_cores": "infer",
}


for _name in (
    "estimators",
    "meta",
    "self_supervised",
    "latent",
    "continual",
    "decide",
    "calibrate",
    "evaluate",
    "infer",
):
    register_on_demand(lambda name=_name: require(f"marginax.{name}"))


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return require(f"marginax.{name}")
    if name in _FROM:
        return getattr(require(f"marginax.{_FROM[name]}"), name)
    raise AttributeError(f"module 'marginax' has no attribute {name!r}")


__all__ = [
    "All",
    "Density",
    "GaussianProcess",
    "LargestVariance",
    "LastLayer",
    "Model",
    "Paths",
    "Program",
    "SelfSupervised",
    "augment",
    "curvature",
    "data",
    "fit",
    "infer",
    "latent",
    "launch",
    "likelihoods",
    "load",
    "meta",
    "nets",
    "posterior",
    "predict",
    "priors",
    "register",
    "register_function",
    "resume",
    "self_supervised",
    "use_cores",
]
