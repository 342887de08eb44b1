"""What is attacked: small runs of every kind, each with its one command that goes on."""

import contextlib
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import marginax as mx
from marginax.files import FileError
from marginax.infer import MALA, MAP, SGHMC, SWAG, VI, DeepEnsemble, Laplace, MCDropout

TRAINING = MAP(num_epochs=8, batch_size=6)
METHODS: dict[str, Any] = {
    "map": TRAINING,
    "deep_ensemble": DeepEnsemble(2, TRAINING),
    "mala": MALA(num_warmup=8, num_samples=4, thin=2),
    "sghmc": SGHMC(num_warmup=8, num_samples=4, thin=2, batch_size=6, training=TRAINING),
    "vi": VI(num_epochs=8, batch_size=6),
    "swag": SWAG(rank=2, num_snapshots=4, batch_size=6, training=TRAINING),
    "laplace": Laplace(training=TRAINING),
    "mc_dropout": MCDropout(num_epochs=8, batch_size=6),
}
REFUSALS = (FileError, FileExistsError, ValueError)
LONGEST = 120  # seconds of a case
NOT_BEGUN = ("begins it", "begins again", "no such file or directory")


class RefusedError(Exception):
    """A command has ended with an error in one line."""


@dataclass(frozen=True)
class Work:
    """A run in a directory.

    Attributes:
        name: of it.
        begin: starts it.
        resume: goes on with it.
        answer: what it has found, read from the directory.
        is_estimator: whether `mx.estimators.load` reads it.
    """

    name: str
    begin: Callable[[Path], None]
    resume: Callable[[Path], None]
    answer: Callable[[Path], list[np.ndarray]]
    is_estimator: bool = False

    def go_on(self, path: Path) -> list[np.ndarray]:
        """The one command that goes on, and what comes out; a run that never began is begun."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.resume(path)
            except (FileError, RefusedError) as error:
                if not any(text in str(error) for text in NOT_BEGUN):
                    raise
                self.begin(path)
            return self.answer(path)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 2)).astype(np.float32)
    return x, x.sum(1)


def model() -> mx.Model:
    return mx.Model(mx.nets.MLP(2, (3,), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.3))


def numbers(tree: Any) -> list[np.ndarray]:
    """All arrays of a tree; keys as their data."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    is_key = [jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    return [np.array(jax.random.key_data(leaf) if key else leaf) for leaf, key in zip(leaves, is_key, strict=True)]


def _fit(name: str) -> Work:
    def begin(path: Path) -> None:
        mx.fit(model(), data(), METHODS[name], key=0, num_chains=2, directory=path, progress=False, chunk_size=4)

    def resume(path: Path) -> None:
        mx.resume(path, progress=False)

    return Work(name, begin, resume, lambda path: numbers(mx.load(path)))


def _estimator() -> Work:
    x, y = data()

    def begin(path: Path) -> None:
        mx.estimators.BayesianRegressor(method=TRAINING, hidden=(3,), progress=False).fit(x, y, directory=path)

    def resume(path: Path) -> None:
        mx.estimators.resume(path, progress=False)

    return Work("estimator", begin, resume, lambda path: [mx.estimators.load(path).predict(x)], True)


def _saved() -> Work:
    """An estimator that is saved over another one: either is right."""
    x, y = data()

    def begin(path: Path) -> None:
        for scale in (1.0, 2.0):
            estimator = mx.estimators.BayesianRegressor(method=TRAINING, hidden=(3,), progress=False).fit(x, scale * y)
            estimator.save(path, overwrite=True)

    def answer(path: Path) -> list[np.ndarray]:
        mx.estimators.load(path)  # whole, the old or the new one
        begin(path)
        return [mx.estimators.load(path).predict(x)]

    return Work("saved", begin, lambda path: None, answer_or_begin(begin, answer), True)


def _comparison() -> Work:
    x, y = data()

    def begin(path: Path) -> None:
        methods = {"map": METHODS["map"], "mala": METHODS["mala"]}
        mx.evaluate.compare(model(), (x, y), methods, test=(x, y), key=0, directory=path, progress=False)

    def answer(path: Path) -> list[np.ndarray]:
        found = mx.evaluate.load_comparison(path)
        if failures := [row.failure for row in found.values() if row.failure is not None]:
            raise RefusedError(failures[0])
        scores = [np.array([score.value for score in row.scores.values()]) for row in found.values()]
        return [*scores, *numbers([found.posteriors[name] for name in found])]

    return Work("comparison", begin, begin, answer)


def _active() -> Work:
    x, y = data()
    oracle = mx.decide.KnownLabels(y)

    def begin(path: Path) -> None:
        pool = mx.decide.Pool(x, rows=[0, 1, 2], y=y[:3])
        mx.decide.learn_actively(
            model(), pool, oracle, TRAINING, mx.decide.Random(), batch_size=1, budget=2, key=0, directory=path
        )

    def resume(path: Path) -> None:
        mx.decide.resume_learning(path, oracle)

    def answer(path: Path) -> list[np.ndarray]:
        found = mx.decide.resume_learning(path, oracle)
        return [np.asarray(found.pool.labelled), *numbers(found.posterior)]

    return Work("active", begin, resume, answer)


def _command_line() -> Work:
    from typer.testing import CliRunner

    from marginax.cli import app

    def run(*arguments: Any) -> str:
        found = CliRunner().invoke(app, [str(each) for each in arguments])
        if found.exit_code == 1 and found.exception is not None and isinstance(found.exception, SystemExit):
            raise RefusedError(found.stderr.strip().splitlines()[-1])
        if found.exit_code in (130, 143):
            raise KeyboardInterrupt(found.stderr)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found.stdout

    def begin(path: Path) -> None:
        table = path.parent / f"{path.name}.csv"
        if not table.exists():
            x, y = data()
            pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y}).to_csv(table, index=False)
        run("fit", table, "--target", "y", "--method", "map", "--hidden", "", "--out", path, "--quiet")

    def answer(path: Path) -> list[np.ndarray]:
        scores = json.loads(run("resume", path, "--json"))["scores"]
        return [np.array([scores[name]["value"] for name in sorted(scores)], float)]

    return Work("command_line", begin, lambda path: None, answer_or_begin(begin, answer))


def answer_or_begin(begin: Callable[[Path], None], answer: Any) -> Callable[[Path], list[np.ndarray]]:
    """What is found; where it is said that there is nothing yet, after beginning again."""

    def found(path: Path) -> list[np.ndarray]:
        try:
            return answer(path)
        except (FileError, RefusedError) as error:
            if not any(text in str(error) for text in NOT_BEGUN):
                raise
        begin(path)
        return answer(path)

    return found


def works() -> dict[str, Work]:
    """All of them by name."""
    others = [_estimator(), _saved(), _comparison(), _active(), _command_line()]
    return {name: _fit(name) for name in METHODS} | {work.name: work for work in others}


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    """Bit for bit."""
    return len(a) == len(b) and all(
        u.shape == v.shape and u.dtype == v.dtype and u.tobytes() == v.tobytes() for u, v in zip(a, b, strict=True)
    )


@contextlib.contextmanager
def quiet() -> Any:
    """Without warnings, and without a compilation cache."""
    os.environ["MARGINAX_CACHE"] = "off"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def judge(work: Work, path: Path, truth: list[np.ndarray], what: str, *, may_refuse: bool) -> tuple[str, str]:
    """What comes of going on with it; and what was done to it, with what was said."""
    began, said = time.monotonic(), ""
    try:
        outcome = "same" if same(work.go_on(path), truth) else "wrong"
    except (*REFUSALS, RefusedError) as error:
        said = str(error).strip()
        outcome = "error" if "\n" in said else "refused" if may_refuse else "loss"
    except BaseException as error:
        outcome, said = "error", f"{type(error).__name__}: {error}"
    return "hang" if time.monotonic() - began > LONGEST else outcome, f"{what}: {said:.300}"
