"""Small problems on which every method, with no arguments, must be sensible; each says what that means."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

NOISE = 0.3
FEW_ROWS = 300  # of a UCI set or of MNIST, so that the slowest sampler ends within minutes
UCI = ("boston", "concrete", "energy", "kin8nm", "power", "wine", "yacht")


@dataclass(frozen=True)
class Finding:
    """What a posterior scored, and what of it is not sensible."""

    scores: dict[str, float]
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Problem:
    """Rows to fit, and a judge of the posterior."""

    name: str
    fit: Callable[[Any], Any]
    judge: Callable[[Any, Any], Finding]


def problems() -> dict[str, Problem]:
    """By name: three that are made up, then real ones, whose data must be there."""
    return {problem.name: problem for problem in (_moons(), _sine(), _ten_points(), _mnist(), *map(_uci, UCI))}


def fit_defaults(method: Any, data: Any, likelihood: Any, num_outputs: int, hidden: tuple[int, ...] = (50, 50)) -> Any:
    """A network with nothing said about it but its size."""
    import marginax as mx

    x = data.x if hasattr(data, "x") else data[0]
    model = mx.Model(mx.nets.MLP(x.shape[1], hidden, num_outputs, key=0), likelihood)
    return mx.fit(model, data, method, key=0, progress=False)


def says_so(posterior: Any) -> bool:
    """Whether the posterior itself warns that it has not learned: independent weights may do best to ignore rows."""
    return any("ignoring the data" in text for text in posterior.summary().warnings)


def _finding(scores: dict[str, float], claims: dict[str, bool]) -> Finding:
    return Finding(scores, tuple(claim for claim, holds in claims.items() if not holds))


def _is_likelihood_alone(method: Any) -> bool:
    return type(method).__name__ == "MLE"


# ---- classes


def _classes(name: str, train: Any, test: Any, num_classes: int, bounds: tuple[float, float], hidden: Any) -> Problem:
    def fit(method: Any) -> Any:
        import marginax as mx

        return fit_defaults(method, train(), mx.likelihoods.Categorical(), num_classes, hidden)

    def judge(method: Any, posterior: Any) -> Finding:
        x, y = test()
        prediction = posterior.predict(x)
        accuracy, nll = float(np.mean(prediction.labels == y)), -float(np.mean(prediction.log_prob(y)))
        claims = {f"accuracy above {bounds[0]}": accuracy > bounds[0]}
        if not _is_likelihood_alone(method):  # it is sure of everything between the classes
            claims[f"NLL below {bounds[1]}"] = nll < bounds[1]
        return _finding({"accuracy": accuracy, "nll": nll}, claims)

    return Problem(name, fit, judge)


def _moons() -> Problem:
    def points(num: int, seed: int) -> Any:
        from sklearn.datasets import make_moons

        return make_moons(num, noise=0.2, random_state=seed)

    return _classes("moons", lambda: points(200, 1), lambda: points(1000, 2), 2, (0.92, 0.3), (50, 50))


def _mnist() -> Problem:
    """Digits of 14 x 14 pixels."""

    def images(split: str, num: int) -> Any:
        from marginax.data import load_mnist

        x, y = load_mnist(split)
        small = np.asarray(x[:num], np.float32).reshape(num, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(num, -1)
        return (small - 0.13) / 0.3 if small.max() <= 1 else (small / 255 - 0.13) / 0.3, np.asarray(y[:num])

    return _classes("mnist", lambda: images("train", FEW_ROWS), lambda: images("test", 1000), 10, (0.7, 1.3), (16,))


# ---- numbers


def _sine() -> Problem:
    def rows(num: int, seed: int) -> Any:
        generator = np.random.default_rng(seed)
        x = generator.uniform(-3, 3, (num, 1))
        return x, np.sin(2 * x[:, 0]) + NOISE * generator.normal(size=num)

    def judge(method: Any, posterior: Any) -> Finding:
        x, y = rows(1000, 2)
        scores, constant = _scores(posterior, x, y, rows(100, 1)[1])
        return _finding(
            scores,
            {
                "RMSE below .45": scores["rmse"] < 0.45,  # the noise has 0.3, a constant 0.77
                "NLL .3 below a constant's": scores["nll"] < constant - 0.3,
            },
        )

    return Problem("sine", lambda method: _fit_numbers(method, rows(100, 1)), judge)


def _ten_points() -> Problem:
    def rows(num: int, seed: int) -> Any:
        """A line with as much noise as signal."""
        generator = np.random.default_rng(seed)
        x = generator.uniform(-1, 1, (num, 1))
        return x, x[:, 0] + 0.5 * generator.normal(size=num)

    def judge(method: Any, posterior: Any) -> Finding:
        (x, y), train = rows(1000, 2), rows(10, 1)
        scores, _ = _scores(posterior, x, y, train[1])
        inside = np.abs(x[:, 0]) < np.abs(train[0]).max()
        prediction, line = posterior.predict(x), _StraightLine(*train)
        error = float(np.sqrt(np.mean((prediction.mean - y)[inside] ** 2)))
        claims = {"RMSE between the points below 1": error < 1.0}  # nobody knows better than 0.5
        if not posterior.is_point:
            far = posterior.predict(np.array([[-4.0], [4.0]])).epistemic.mean()
            known = float(np.mean(np.abs(y - line.predict(x)) < line.half_width(x)))
            claims["90% intervals cover as a straight line's, or a quarter less"] = scores["coverage"] > known - 0.25
            claims["less is known far away"] = bool(far > prediction.epistemic.mean())
        return _finding({**scores, "rmse": error}, claims)

    return Problem("ten points", lambda method: _fit_numbers(method, rows(10, 1)), judge)


class _StraightLine:
    """Least squares with the exact intervals of Student: all that can be known of noise from a few rows."""

    def __init__(self, x: np.ndarray, y: np.ndarray):
        from sklearn.linear_model import LinearRegression

        self.predict = LinearRegression().fit(x, y).predict
        self.columns = np.column_stack([np.ones(len(x)), x])
        self.num_free = len(x) - self.columns.shape[1]
        self.variance = np.sum((y - self.predict(x)) ** 2) / self.num_free

    def half_width(self, x: np.ndarray) -> np.ndarray:
        """Of 90% intervals at new rows."""
        from scipy.stats import t

        columns = np.column_stack([np.ones(len(x)), x])
        spread = np.einsum("ni,ij,nj->n", columns, np.linalg.inv(self.columns.T @ self.columns), columns)
        return t.ppf(0.95, self.num_free) * np.sqrt(self.variance * (1 + spread))


def _uci(name: str) -> Problem:
    """Some rows of the first split."""

    def rows() -> Any:
        from marginax.data import load_uci

        x, y, x_test, y_test = load_uci(name, 0)
        chosen = np.random.default_rng(0).permutation(len(x))[:FEW_ROWS]
        return (x[chosen], y[chosen].ravel()), (x_test[:500], y_test[:500].ravel())

    def judge(method: Any, posterior: Any) -> Finding:
        train, (x, y) = rows()
        scores, constant = _scores(posterior, x, y, train[1])
        claims = {"RMSE below a constant's": scores["rmse"] < np.sqrt(np.mean((y - train[1].mean()) ** 2))}
        if not posterior.is_point:
            claims["NLL below a constant's"] = scores["nll"] < constant
        return _finding(scores, claims)

    return Problem(name, lambda method: _fit_numbers(method, rows()[0]), judge)


def _fit_numbers(method: Any, data: Any) -> Any:
    import marginax as mx

    return fit_defaults(method, mx.data.standardise(data), mx.likelihoods.Gaussian(), 1)


def _scores(posterior: Any, x: np.ndarray, y: np.ndarray, y_train: np.ndarray) -> tuple[dict[str, float], float]:
    """Scores of test rows, and the negative log density of them under the mean and spread of the training rows."""
    prediction = posterior.predict(x)
    lower, upper = prediction.interval(0.9)
    scores = {
        "rmse": float(np.sqrt(np.mean((prediction.mean - y) ** 2))),
        "nll": -float(np.mean(prediction.log_prob(y))),
        "coverage": float(np.mean((y >= lower) & (y <= upper))),
    }
    variance = np.var(y_train)
    constant = 0.5 * np.log(2 * np.pi * variance) + 0.5 * np.mean((y - y_train.mean()) ** 2) / variance
    return scores, float(constant)
