"""Approximations: what a family of laws can say, what coordinate ascent does step by step, and a coin."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from marginax import Density, infer, latent
from marginax.infer import AbstractMethod, Event, fit
from marginax.playground.labs.streaming import Streaming
from marginax.playground.labs.text import array, expression, program
from marginax.playground.playable import Frame, Numbers, Playable, Settings, Stage
from marginax.playground.protocol import Choice, Lab, ProtocolError, Setting

_STEPS_PER_STATE = 50
_EXAMPLES = (
    Choice("correlated", "mean-field against full-rank"),
    Choice("mixture", "a mixture, step by step"),
    Choice("coin", "a coin, flip by flip"),
)
_CORRELATED, _MIXTURE, _COIN = ({"example": (choice.value,)} for choice in _EXAMPLES)
LAB = Lab(
    "variational",
    "Variational",
    "What a family of laws can say of a posterior, and what the bound says of it.",
    (
        Setting("example", "Example", "choice", "correlated", choices=_EXAMPLES),
        Setting("correlation", "Correlation", "number", 0.9, least=-0.99, most=0.99, when=_CORRELATED),
        Setting("steps", "Steps", "integer", 1500, least=_STEPS_PER_STATE, most=5000, log=True, when=_CORRELATED),
        Setting("particles", "Draws per step", "integer", 8, least=1, most=64, log=True, when=_CORRELATED),
        Setting(
            "points", "Points", "points", [], "none: three clouds", least=-6, most=6, max_length=400, when=_MIXTURE
        ),
        Setting(
            "by",
            "By",
            "choice",
            "CoordinateAscent",
            choices=(Choice("EM", "EM"), Choice("CoordinateAscent", "coordinate ascent")),
            when=_MIXTURE,
        ),
        Setting("components", "Components", "integer", 6, least=1, most=10, when=_MIXTURE),
        Setting("iterations", "Iterations", "integer", 60, least=1, most=200, log=True, when=_MIXTURE),
        Setting(
            "flips",
            "Flips",
            "numbers",
            [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0],
            "1 is heads",
            least=0,
            most=1,
            max_length=100,
            when=_COIN,
        ),
        Setting("heads", "Prior heads", "number", 1.0, least=0.1, most=50.0, log=True, when=_COIN),
        Setting("tails", "Prior tails", "number", 1.0, least=0.1, most=50.0, log=True, when=_COIN),
        Setting("seed", "Seed", "integer", 0, least=0, most=9999),
    ),
)


def check(settings: Settings) -> None:
    """Enough points for the components; whole flips."""
    if settings["example"] == "mixture":
        num = len(points_of(settings))
        if num < max(4, settings["components"]):
            least = max(4, settings["components"])
            raise ProtocolError(f"settings: points must be at least {least}, one for each component, got {num}")
        if np.ptp(points_of(settings), axis=0).min() < 1e-3:
            raise ProtocolError("settings: points must differ in both coordinates")
    if settings["example"] == "coin" and not all(flip in (0, 1) for flip in settings["flips"]):
        raise ProtocolError("settings: flips must be 0 or 1")


def run(settings: Settings, stage: Stage) -> Numbers:
    """The chosen example."""
    return {"correlated": run_correlated, "mixture": run_mixture, "coin": run_coin}[settings["example"]](
        settings, stage
    )


def to_python(settings: Settings) -> str:
    """The text that gives the same numbers."""
    write: Callable[[Settings], list[str]] = {"correlated": _correlated, "mixture": _mixture, "coin": _coin}[
        settings["example"]
    ]
    return program(["import numpy as np", "", "import marginax as mx", "", *write(settings), "print(numbers)"])


# ---- a correlated normal


def vi_of(settings: Settings, family: str) -> AbstractMethod:
    """By name of the family in states."""
    chosen = infer.MeanField() if family == "mean_field" else infer.FullRank()
    return infer.VI(family=chosen, num_particles=settings["particles"], kl_warmup=0.0, num_epochs=settings["steps"])


def precision_of(correlation: float) -> np.ndarray:
    """Of a normal with unit variances."""
    return np.array([[1.0, -correlation], [-correlation, 1.0]]) / (1.0 - correlation**2)


def run_correlated(settings: Settings, stage: Stage) -> Numbers:
    """Both families in turn; the bound of the log evidence, which is zero, at every look."""
    r, seed = settings["correlation"], settings["seed"]
    precision = jnp.asarray(precision_of(r))
    constant = float(np.log(2 * np.pi) + 0.5 * np.log(1 - r**2))
    density = Density(lambda at: -0.5 * at @ precision @ at - constant, jnp.zeros(2))
    unit = {"mean": np.zeros(2), "cov": np.eye(2)}
    data: dict[str, Any] = {
        "example": "correlated",
        "target": {"mean": np.zeros(2), "cov": np.array([[1.0, r], [r, 1.0]])},
        "log_evidence": 0.0,
        "mean_field": unit,
        "full_rank": unit,
        "steps": [],
        "bound": {"mean_field": [], "full_rank": []},
    }
    numbers: Numbers = {}
    for family in ("mean_field", "full_rank"):
        method = vi_of(settings, family)

        def look(event: Event, family: str = family, method: AbstractMethod = method) -> None:
            data["bound"][family].append(float(event.info["elbo"].mean(dtype=np.float64)))
            data[family] = described(method.posterior(event.model, event.states, None, {}))
            data["steps"] += [event.step] if family == "mean_field" else []
            stage.show(Frame(event.step, event.num_steps, family, data))

        # A period and no chunk size: every look is after as many steps, whatever the speed of the machine.
        hooks = (Streaming(look, {"train": _STEPS_PER_STATE}),)
        posterior = fit(density, None, method, key=seed, hooks=hooks, progress=False, chunk_size=_STEPS_PER_STATE)
        numbers |= {f"{family}_{name}": value.tolist() for name, value in described(posterior).items()}
    return numbers


def described(posterior: Any) -> dict[str, np.ndarray]:
    """Mean and covariance of a normal posterior of a vector."""
    return {"mean": np.asarray(posterior.mean), "cov": np.asarray(posterior.covariance.dense())}


def _correlated(settings: Settings) -> list[str]:
    r = settings["correlation"]
    lines = [
        "import jax.numpy as jnp",
        "",
        f"precision = jnp.array({precision_of(r).tolist()!r})",
        f"constant = {float(np.log(2 * np.pi) + 0.5 * np.log(1 - r**2))!r}",
        "density = mx.Density(lambda at: -0.5 * at @ precision @ at - constant, jnp.zeros(2))",
        "numbers = {}",
    ]
    for family in ("mean_field", "full_rank"):
        lines += [
            f"method = {expression(vi_of(settings, family))}",
            f"posterior = mx.fit(density, None, method, key={settings['seed']})",
            f'numbers["{family}_mean"] = np.asarray(posterior.mean).tolist()',
            f'numbers["{family}_cov"] = np.asarray(posterior.covariance.dense()).tolist()',
        ]
    return lines


# ---- a mixture


def points_of(settings: Settings) -> np.ndarray:
    """Points (n, 2): the person's, or three clouds."""
    if settings["points"]:
        return np.asarray(settings["points"], float)
    rng = np.random.default_rng(0)
    clouds = [(-2.5, -1.0, 0.6, 0.9), (2.0, -1.5, 1.1, 0.4), (0.5, 2.2, 0.5, 0.5)]
    return np.concatenate([rng.normal((x, y), (a, b), size=(50, 2)) for x, y, a, b in clouds]).round(3)


def mixture_method(settings: Settings) -> AbstractMethod:
    """All of its steps are taken, so that each can be seen."""
    kind = infer.EM if settings["by"] == "EM" else infer.CoordinateAscent
    return kind(num_steps=settings["iterations"])


def run_mixture(settings: Settings, stage: Stage) -> Numbers:
    """Every step: who belongs where, and the parts of the bound."""
    points, method = points_of(settings), mixture_method(settings)
    model = latent.GaussianMixture(settings["components"])
    parts: dict[str, list[float]] = {"bound": [], "reconstruction": [], "complexity": []}

    def data_of(posterior: Any) -> dict[str, Any]:
        found, weights = posterior.components(), posterior.weights()
        means, covariances = found["means"], found["covariances"]
        components = [
            {"weight": weight, "mean": mean, "cov": cov}
            for weight, mean, cov in zip(weights, means, covariances, strict=True)
        ]
        shown = {"points": points, "responsibilities": posterior.responsibilities(points), "components": components}
        return {"example": "mixture", **shown, **parts}

    def look(event: Event) -> None:
        objective = event.info["elbo"] if "elbo" in event.info else event.info["log_likelihood"]
        parts["bound"].append(float(objective[0, -1]))
        for name in ("reconstruction", "complexity"):
            given = event.info[name][0, -1] if name in event.info else objective[0, -1] * (name == "reconstruction")
            parts[name].append(float(given))
        posterior = method.posterior(event.model, event.states, None, {})
        stage.show(Frame(event.step, event.num_steps, "iterate", data_of(posterior)))

    hooks = (Streaming(look, {"iterate": 1}),)
    posterior: Any = fit(model, points, method, key=settings["seed"], hooks=hooks, progress=False)
    stage.show(Frame(settings["iterations"], settings["iterations"], "posterior", data_of(posterior)))
    return {"weights": posterior.weights().tolist(), "means": posterior.components()["means"].tolist()}


def _mixture(settings: Settings) -> list[str]:
    return [
        f"x = {array(points_of(settings))}",
        f"model = mx.latent.GaussianMixture({settings['components']})",
        f"posterior = mx.fit(model, x, {expression(mixture_method(settings))}, key={settings['seed']})",
        'numbers = {"weights": posterior.weights().tolist(), "means": posterior.components()["means"].tolist()}',
    ]


# ---- a coin


def run_coin(settings: Settings, stage: Stage) -> Numbers:
    """What is believed of the chance of heads, before the first flip and after each."""
    flips = [int(flip) for flip in settings["flips"]]
    grid = np.linspace(0.0, 1.0, 101)
    numbers: Numbers = {}
    for count in range(len(flips) + 1):
        seen = flips[:count]
        numbers = coin_numbers(settings, seen)
        inside = np.clip(grid, 1e-4, 1 - 1e-4)
        data = {
            "example": "coin",
            "flips": seen,
            "grid": grid,
            "prior": stats.beta.pdf(inside, settings["heads"], settings["tails"]),
            "posterior": stats.beta.pdf(inside, numbers["a"], numbers["b"]),
            **numbers,
        }
        stage.show(Frame(count, len(flips), "flip", data))
    return numbers


def coin_numbers(settings: Settings, flips: list[int]) -> Numbers:
    """The belief, and the evidence of the flips in their order."""
    heads, tails = sum(flips), len(flips) - sum(flips)
    coin = latent.BetaBinomial(settings["heads"], settings["tails"])
    rows = np.array([[heads, tails]])
    posterior: Any = fit(coin, rows, infer.CoordinateAscent(num_steps=2), key=settings["seed"], progress=False)
    a, b = np.asarray(posterior.belief, float).tolist()
    lower, upper = stats.beta(a, b).interval(0.9)
    orders = np.log(special.comb(heads + tails, heads))
    return {
        "a": a,
        "b": b,
        "mean": a / (a + b),
        "lower": float(lower),
        "upper": float(upper),
        "log_evidence": float(posterior.elbo - orders),
    }


def _coin(settings: Settings) -> list[str]:
    flips = [int(flip) for flip in settings["flips"]]
    heads, tails = sum(flips), len(flips) - sum(flips)
    return [
        "from scipy import special, stats",
        "",
        f"coin = mx.latent.BetaBinomial({settings['heads']!r}, {settings['tails']!r})",
        f"method = {expression(infer.CoordinateAscent(num_steps=2))}",
        f"posterior = mx.fit(coin, np.array([[{heads}, {tails}]]), method, key={settings['seed']})",
        "a, b = np.asarray(posterior.belief, float).tolist()",
        "lower, upper = stats.beta(a, b).interval(0.9)",
        f"orders = np.log(special.comb({heads + tails}, {heads}))  # the evidence of the flips in their order",
        "numbers = {",
        '    "a": a,',
        '    "b": b,',
        '    "mean": a / (a + b),',
        '    "lower": float(lower),',
        '    "upper": float(upper),',
        '    "log_evidence": float(posterior.elbo - orders),',
        "}",
    ]


PLAYABLE = Playable(LAB, run, to_python, check)
