"""Careless arrays and arguments through `mx.fit`, whose users have chosen network and likelihood themselves."""

from typing import Any

import numpy as np

from benchmarks.harness.careless_case import ANSWER, EITHER, MARGIN, REFUSAL, Answer, Case, constant_gain_of_normal
from benchmarks.harness.careless_tables import linear_data


def arrays(
    kind: str,
    name: str,
    change: Any = lambda x, y: (x, y),
    *,
    likelihood: str = "Gaussian",
    outputs: int = 1,
    expect: str = ANSWER,
    mentions: tuple[str, ...] = (),
    warns: tuple[str, ...] = (),
    at_least: float = -MARGIN,
    x_new: Any = None,
    **options: Any,
) -> Case:
    """A case of `mx.fit` with a linear network.

    Args:
        kind: of the case.
        name: of the case.
        change: makes the data out of inputs and targets.
        likelihood: by its name.
        outputs: of the network.
        expect: what is expected.
        mentions: what a refusal must hold.
        warns: what a warning must hold, beside which an answer need only be finite.
        at_least: the gain over a constant that is asked for, where targets are numbers.
        x_new: makes the rows to predict; a refusal is then asked of the prediction.
        **options: of `mx.fit`, in place of good ones.
    """

    def model() -> Any:
        import marginax as mx

        network = mx.nets.MLP(in_size=3, hidden=(), out_size=outputs, key=0)
        return mx.Model(network, getattr(mx.likelihoods, likelihood)())

    def fit(model: Any) -> Any:
        import marginax as mx

        data = linear_data()
        good = {"model": model, "method": mx.infer.MAP(), "key": 0, "progress": False}
        given = {"data": change(data.x.to_numpy(), data.y)} | good | options
        return mx.fit(**{name: value for name, value in given.items() if value is not ...})

    def figures(posterior: Any) -> Answer:
        data = linear_data()
        rows = data.x_new.to_numpy()
        if x_new is not None:
            prediction = posterior.predict(x_new(rows))
            return Answer(bool(np.isfinite(prediction.mean).all()))
        changed = change(rows, data.y_new)
        x, y_new = (changed.x, changed.y) if hasattr(changed, "x") else changed
        if hasattr(changed, "scaling"):
            x, y_new = rows, data.y_new
        prediction = posterior.predict(x)
        log_probs = prediction.log_prob(y_new)
        shown = [log_probs, prediction.probs if hasattr(prediction, "probs") else prediction.mean]
        finite = all(bool(np.isfinite(each).all()) for each in shown)
        if likelihood != "Gaussian" or np.ndim(y_new) != 1:
            return Answer(finite)
        changed = change(data.x.to_numpy(), data.y)
        y = data.y if hasattr(changed, "scaling") else changed[1]
        return Answer(finite, constant_gain_of_normal(log_probs, y, y_new), at_least=at_least)

    late = x_new is not None and expect == REFUSAL
    run = figures if late else (lambda model: figures(fit(model)))
    if expect == REFUSAL and not late:  # the fit must refuse, not what judges it

        def run(model: Any) -> Answer:
            fit(model)
            return Answer(True)

    return Case(kind, name, run, expect, mentions, warns, (lambda: fit(model())) if late else model)


def classes(x: Any, y: Any) -> tuple[Any, Any]:
    """Labels 0, 1 and 2."""
    return x, np.digitize(y, [-1.0, 1.0])


def standardised(x: Any, y: Any) -> Any:
    """As `mx.data.standardise` leaves them."""
    import marginax as mx

    return mx.data.standardise((x, y))


def with_value(place: int, value: Any) -> Any:
    """A value in the inputs."""

    def change(x: Any, y: Any) -> Any:
        x = x.astype(object) if isinstance(value, str) else x.copy()
        x[place, 0] = value
        return x, y

    return change


def counted(x: Any, y: Any) -> tuple[Any, Any]:
    """Counts."""
    return x, np.maximum(0, np.round(y)).astype(int)


DATA = [
    arrays("arrays", "in order", at_least=0.5),
    arrays("arrays", "standardised", standardised, at_least=0.5),
    arrays("arrays", "x int", lambda x, y: (np.round(10 * x).astype(int), y), at_least=0.3),
    arrays("arrays", "y (n, 1)", lambda x, y: (x, y[:, None])),
    arrays("arrays", "x bool", lambda x, y: (x > 0, y), at_least=0.1),
    arrays("arrays", "lists", lambda x, y: (x.tolist(), y.tolist()), at_least=0.5),
    arrays("arrays", "NaN in x", with_value(4, np.nan), expect=REFUSAL, mentions=("x has 1", "NaN", "row 4")),
    arrays("arrays", "inf in x", with_value(4, np.inf), expect=REFUSAL, mentions=("x has 1", "infinite", "row 4")),
    arrays("arrays", "a text in x", with_value(4, "a"), expect=REFUSAL, mentions=("x must be numeric", "encode")),
    arrays("arrays", "NaN in y", lambda x, y: (x, y * np.nan), expect=REFUSAL, mentions=("y has", "NaN")),
    arrays("arrays", "texts as y", lambda x, y: (x, y.astype(str)), expect=REFUSAL, mentions=("y must be numeric",)),
    arrays("arrays", "complex x", lambda x, y: (x + 1j, y), expect=REFUSAL, mentions=("x must be numeric",)),
    arrays("arrays", "complex y", lambda x, y: (x, y + 1j), expect=REFUSAL, mentions=("y must be numeric",)),
    arrays("arrays", "x too large for float32", lambda x, y: (1e60 * x, y), expect=REFUSAL, mentions=("x", "standard")),
    arrays("arrays", "y too large for float32", lambda x, y: (x, 1e60 * y), expect=REFUSAL, mentions=("y", "standard")),
    arrays("arrays", "y times 1e30", lambda x, y: (x, 1e30 * y), expect=REFUSAL, mentions=("y", "standard")),
    arrays("arrays", "x times 1e30", lambda x, y: (1e30 * x, y), expect=REFUSAL, mentions=("x", "standard")),
    arrays("arrays", "x times 1e6", lambda x, y: (1e6 * x, y), warns=("x has values", "mx.data.standardise")),
    arrays("arrays", "y plus 1e6", lambda x, y: (x, y + 1e6), warns=("y has values", "mx.data.standardise")),
    arrays("arrays", "y times 1e-30", lambda x, y: (x, 1e-30 * y), warns=("y has values", "mx.data.standardise")),
    arrays("arrays", "y int64 beyond int32", lambda x, y: (x, np.round(1e11 + 1e10 * y).astype(np.int64)),
           warns=("y has values", "mx.data.standardise")),
    arrays("arrays", "x times 1e30, standardised", lambda x, y: standardised(1e30 * x, y), x_new=lambda x: 1e30 * x),
    arrays("arrays", "empty", lambda x, y: (x[:0], y[:0]), expect=REFUSAL, mentions=("x is empty",)),
    arrays("arrays", "y too short", lambda x, y: (x, y[:-1]), expect=REFUSAL, mentions=("x and y", "120", "119")),
    arrays("arrays", "y of three axes", lambda x, y: (x, y[:, None, None]), expect=REFUSAL, mentions=("y must",)),
    arrays("arrays", "x of one axis", lambda x, y: (x[:, 0], y), expect=REFUSAL, mentions=("x", "shape")),
    arrays("arrays", "x of too many columns", lambda x, y: (np.hstack([x, x]), y), expect=REFUSAL, mentions=("3", "6")),
    arrays("arrays", "two targets, one output", lambda x, y: (x, np.stack([y, y], 1)), expect=REFUSAL,
           mentions=("network gives 1", "y has 2", "out_size")),
    arrays("arrays", "one target, two outputs", outputs=2, expect=REFUSAL, mentions=("network gives 2", "out_size")),
    arrays("arrays", "one row", lambda x, y: (x[:1], y[:1]), expect=EITHER, mentions=("x",), x_new=lambda x: x),
    arrays("arrays", "three arrays", lambda x, y: (x, y, y), expect=REFUSAL, mentions=("data must be a pair",)),
    arrays("arrays", "a dict", lambda x, y: {"x": x, "y": y}, expect=REFUSAL, mentions=("data must be a pair",)),
    arrays("arrays", "NaN at prediction", expect=REFUSAL, mentions=("x has", "NaN"), x_new=lambda x: x * np.nan),
    arrays("arrays", "other columns at prediction", expect=REFUSAL, mentions=("x must", "shape"),
           x_new=lambda x: x[:, :2]),
    arrays("arrays", "one axis at prediction", expect=REFUSAL, mentions=("x must", "shape"), x_new=lambda x: x[0]),
    arrays("arrays", "1e30 at prediction", x_new=lambda x: 1e30 * x),
]  # fmt: skip

LABELS = [
    arrays("labels", "in order", classes, likelihood="Categorical", outputs=3),
    arrays("labels", "out of range", classes, likelihood="Categorical", outputs=2, expect=REFUSAL,
           mentions=("y must be between 0 and 1", "2 logits", "got 2")),
    arrays("labels", "negative", lambda x, y: (x, classes(x, y)[1] - 1), likelihood="Categorical", outputs=3,
           expect=REFUSAL, mentions=("y must be between", "got -1")),
    arrays("labels", "whole floats", lambda x, y: (x, classes(x, y)[1] * 1.0), likelihood="Categorical", outputs=3),
    arrays("labels", "decimals", likelihood="Categorical", outputs=3, expect=REFUSAL, mentions=("y must hold whole",)),
    arrays("labels", "one-hot", lambda x, y: (x, np.eye(3)[classes(x, y)[1]]), likelihood="Categorical", outputs=3,
           expect=REFUSAL, mentions=("y must be labels", "(n,)")),
    arrays("labels", "int64 beyond int32", lambda x, y: (x, classes(x, y)[1] + 2**32), likelihood="Categorical",
           outputs=3, expect=REFUSAL, mentions=("y",)),
    arrays("labels", "one logit", classes, likelihood="Categorical", expect=REFUSAL, mentions=("network", "2 logits")),
    arrays("labels", "bool", lambda x, y: (x, y > 0), likelihood="Bernoulli"),
    arrays("labels", "three values for yes and no", classes, likelihood="Bernoulli", expect=REFUSAL,
           mentions=("y must be between 0 and 1", "Bernoulli", "got 2")),
    arrays("labels", "-1 and 1", lambda x, y: (x, np.sign(y).astype(int)), likelihood="Bernoulli", expect=REFUSAL,
           mentions=("y must be between 0 and 1", "got -1")),
    arrays("labels", "counts", counted, likelihood="Poisson"),
    arrays("labels", "negative counts", lambda x, y: (x, np.round(y)), likelihood="Poisson", expect=REFUSAL,
           mentions=("y must be >= 0", "Poisson")),
    arrays("labels", "decimals as counts", likelihood="Poisson", expect=REFUSAL, mentions=("whole numbers", "Poisson")),
    arrays("labels", "counts to a million", lambda x, y: (x, np.where(y > 2, 10**6, counted(x, y)[1])),
           likelihood="Poisson"),
]  # fmt: skip

ARGUMENT = [
    arrays("argument", "no key", key=..., expect=REFUSAL, mentions=("key",)),
    arrays("argument", "key None", key=None, expect=REFUSAL, mentions=("key must be an int seed",)),
    arrays("argument", "key a text", key="seed", expect=REFUSAL, mentions=("key must be an int seed",)),
    arrays("argument", "key 1.5", key=1.5, expect=REFUSAL, mentions=("key must be an int seed",)),
    arrays("argument", "key -1", key=-1, at_least=0.5),
    arrays("argument", "key 2**70", key=2**70, expect=EITHER, mentions=("key",)),
    arrays("argument", "num_chains 0", num_chains=0, expect=REFUSAL, mentions=("num_chains", "got 0")),
    arrays("argument", "num_chains 2.5", num_chains=2.5, expect=REFUSAL, mentions=("num_chains", "2.5")),
    arrays("argument", "num_chains True", num_chains=True, expect=REFUSAL, mentions=("num_chains", "True")),
    arrays("argument", "method a text", method="mapp", expect=REFUSAL, mentions=("method must be", "MAP", "mapp")),
    arrays("argument", "method None", method=None, expect=REFUSAL, mentions=("method must be", "mx.infer.MAP()")),
    arrays("argument", "model a text", model="mlp", expect=REFUSAL, mentions=("model must be",)),
    arrays("argument", "data None", data=None, expect=REFUSAL, mentions=("data must be a pair",)),
    arrays("argument", "init a number", init=3.0, expect=REFUSAL, mentions=("init",)),
    arrays("argument", "hooks a number", hooks=(3,), expect=REFUSAL, mentions=("hooks must be", "3")),
    arrays("argument", "chunk_size 0", chunk_size=0, expect=REFUSAL, mentions=("chunk_size", "0")),
]

CASES = [*DATA, *LABELS, *ARGUMENT]
