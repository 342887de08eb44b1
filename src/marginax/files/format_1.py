"""Files of format 1 (version 0.1.0), where a class was called by the file that it lived in."""

import dataclasses
from typing import Any

CLASSES = {
    "_adaptation.DenseScale": "metric/dense",
    "_adaptation.DiagonalScale": "metric/diagonal",
    "_stochastic.ControlVariates": "sgmcmc/control_variates",
    "_stochastic.Decreasing": "schedule/polynomial_decay",
    "acquisition.BALD": "acquisition/bald",
    "acquisition.BatchBALD": "acquisition/batch_bald",
    "acquisition.EPIG": "acquisition/epig",
    "acquisition.Entropy": "acquisition/entropy",
    "acquisition.PredictiveCovariance": "acquisition/predictive_covariance",
    "acquisition.PredictiveVariance": "acquisition/predictive_variance",
    "acquisition.Random": "acquisition/random",
    "acquisition.VariationRatios": "acquisition/variation_ratios",
    "adapters.Function": "net/function",
    "adjusted_mclmc.AdjustedMCLMC": "method/adjusted_mclmc",
    "arrays.Arrays": "data/arrays",
    "arrays.DataSpec": "data/spec",
    "bayes_by_backprop.BayesByBackprop": "method/bayes_by_backprop",
    "blocks.BlockCovariance": "covariance/block",
    "blocks.FixedCovariance": "covariance/fixed",
    "blocks.KroneckerCovariance": "covariance/kronecker",
    "blocks.SubsetCovariance": "covariance/subset",
    "calibrated.Calibrated": "posterior/calibrated",
    "columns.ColumnEncoder": "table/column_encoder",
    "comparison.ComparisonRow": "comparison/row",
    "concrete_dropout.ConcreteDropout": "method/concrete_dropout",
    "conformal.ConformalIntervals": "conformal/intervals",
    "conformal.ConformalSets": "conformal/sets",
    "conformance.InterruptAt": "testing/interrupt_at",
    "conjugate_priors.LogGamma": "prior/log_gamma",
    "conjugate_priors.LogitBeta": "prior/logit_beta",
    "convolution.Conv2d": "net/conv2d",
    "covariances.DenseCovariance": "covariance/dense",
    "covariances.DiagonalCovariance": "covariance/diagonal",
    "covariances.KeptCovariance": "covariance/kept",
    "covariances.LowRankCovariance": "covariance/low_rank",
    "covariances.ReducedCovariance": "covariance/reduced",
    "curve.LearningCurve": "active/learning_curve",
    "custom.Custom": "likelihood/custom",
    "custom.Tempered": "likelihood/tempered",
    "cyclical.CyclicalSGMCMC": "method/cyclical_sgmcmc",
    "discrete.Bernoulli": "likelihood/bernoulli",
    "discrete.Categorical": "likelihood/categorical",
    "discrete.Poisson": "likelihood/poisson",
    "distributions.Bernoulli": "distribution/bernoulli",
    "distributions.Categorical": "distribution/categorical",
    "distributions.Laplace": "distribution/laplace",
    "distributions.Normal": "distribution/normal",
    "distributions.Poisson": "distribution/poisson",
    "distributions.StudentT": "distribution/student_t",
    "divergences.ClosedForm": "divergence/closed_form",
    "divergences.Halving": "kl_weighting/blundell",
    "divergences.MonteCarlo": "divergence/monte_carlo",
    "divergences.StickingTheLanding": "divergence/sticking_the_landing",
    "divergences.Uniform": "kl_weighting/uniform",
    "draws.Draws": "posterior/draws",
    "dropconnect.DropConnect": "method/dropconnect",
    "ensembles.AnchoredEnsemble": "method/anchored_ensemble",
    "ensembles.DeepEnsemble": "method/deep_ensemble",
    "estimators.Flipout": "gradient/flipout",
    "estimators.LocalReparameterisation": "gradient/local_reparameterisation",
    "estimators.Reparameterisation": "gradient/reparameterisation",
    "families.Flow": "family/flow",
    "families.FullRank": "family/full_rank",
    "families.LowRank": "family/low_rank",
    "families.MeanField": "family/mean_field",
    "flow.AutoregressiveFlow": "posterior/autoregressive_flow",
    "flow.Transformed": "posterior/transformed",
    "gaussian.Gaussian": "posterior/gaussian",
    "gaussian.Mixture": "posterior/mixture",
    "gaussian_dropout.GaussianDropout": "method/gaussian_dropout",
    "growing.GrowingMinibatches": "data/growing_minibatches",
    "hmc.HMC": "method/hmc",
    "hooks.EarlyStopping": "hook/early_stopping",
    "hooks.TimeLimit": "hook/time_limit",
    "initialisers.Initialiser": "net/initialiser",
    "ivon.IVON": "method/ivon",
    "jackknife.JackknifePlus": "conformal/jackknife_plus",
    "kinds.EmpiricalFisher": "curvature_kind/empirical_fisher",
    "kinds.GGN": "curvature_kind/ggn",
    "kinds.Hessian": "curvature_kind/hessian",
    "kinds.MonteCarloFisher": "curvature_kind/monte_carlo_fisher",
    "kronecker.CorrectedKronecker": "structure/ekfac",
    "kronecker.Kronecker": "structure/kronecker",
    "laplace.Laplace": "method/laplace",
    "laplace.LargestVariance": "subset/largest_variance",
    "lenet.LeNet": "net/lenet",
    "linearised.Linearised": "predictive/linearised",
    "linearised.ThroughNetwork": "predictive/network",
    "links.LaplaceBridge": "link/laplace_bridge",
    "links.MonteCarlo": "link/monte_carlo",
    "links.Probit": "link/probit",
    "logit_scaling.BayesianTemperature": "calibration/bayesian_temperature",
    "logit_scaling.BayesianTemperatureCalibrator": "calibrator/bayesian_temperature",
    "logit_scaling.Temperature": "calibration/temperature",
    "logit_scaling.TemperatureCalibrator": "calibrator/temperature",
    "logit_scaling.VectorCalibrator": "calibrator/vector",
    "logit_scaling.VectorScaling": "calibration/vector",
    "mala.MALA": "method/mala",
    "map.MAP": "method/map",
    "map.MLE": "method/mle",
    "mapped.MappedFiles": "data/mapped_files",
    "mc_dropout.MCDropout": "method/mc_dropout",
    "mclmc.MCLMC": "method/mclmc",
    "metropolis.MetropolisHastings": "method/metropolis_hastings",
    "mile.MILE": "method/mile",
    "mlp.MLP": "net/mlp",
    "mode.Mode": "posterior/laplace_mode",
    "model.Model": "model/model",
    "model.Params": "model/params",
    "noise.ConcreteFactor": "noise/concrete",
    "noise.Dropout": "noise/dropout",
    "noise.GaussianFactor": "noise/gaussian",
    "noise.WeightDropout": "noise/dropconnect",
    "normal_outputs.NormalOutputs": "distribution/normal_outputs",
    "number_maps.QuantileCalibrator": "calibrator/quantile",
    "number_maps.QuantileRecalibration": "calibration/quantile",
    "number_maps.VarianceCalibrator": "calibrator/variance",
    "number_maps.VarianceScaling": "calibration/variance",
    "nuts.NUTS": "method/nuts",
    "odds_maps.Beta": "calibration/beta",
    "odds_maps.Isotonic": "calibration/isotonic",
    "odds_maps.IsotonicCalibrator": "calibrator/isotonic",
    "odds_maps.OddsCalibrator": "calibrator/odds",
    "odds_maps.Platt": "calibration/platt",
    "online.Online": "tuning/online",
    "online.OnlineTraining": "method/online_training",
    "optimisers.Adam": "optimiser/adam",
    "optimisers.Constant": "schedule/constant",
    "optimisers.Cosine": "schedule/cosine",
    "optimisers.LBFGS": "optimiser/lbfgs",
    "optimisers.SGD": "optimiser/sgd",
    "oracle.KnownLabels": "active/known_labels",
    "pool.Pool": "active/pool",
    "positive.Gamma": "distribution/gamma",
    "positive.HalfCauchy": "distribution/half_cauchy",
    "positive.HalfNormal": "distribution/half_normal",
    "positive.InverseGamma": "distribution/inverse_gamma",
    "positive.LogNormal": "distribution/log_normal",
    "priors.ByPath": "prior/by_path",
    "priors.FanIn": "prior/fan_in",
    "priors.Flat": "prior/flat",
    "priors.Horseshoe": "prior/horseshoe",
    "priors.Laplace": "prior/laplace",
    "priors.Normal": "prior/normal",
    "priors.ScaleMixture": "prior/scale_mixture",
    "priors.StudentT": "prior/student_t",
    "psgld.PreconditionedSGLD": "method/preconditioned_sgld",
    "real.Gaussian": "likelihood/gaussian",
    "real.Laplace": "likelihood/laplace",
    "real.StudentT": "likelihood/student_t",
    "record.FitRecord": "posterior/record",
    "rescaled.Rescaled": "prior/rescaled",
    "rescaled.RescaledLeaf": "prior/rescaled_leaf",
    "results.BlockCurvature": "curvature/block",
    "results.DenseCurvature": "curvature/dense",
    "results.DiagonalCurvature": "curvature/diagonal",
    "results.FactoredCurvature": "curvature/kronecker",
    "results.ReducedCurvature": "curvature/low_rank",
    "rules.APS": "conformal_rule/aps",
    "rules.AbsoluteResidual": "conformal_rule/absolute_residual",
    "rules.CQR": "conformal_rule/cqr",
    "rules.LAC": "conformal_rule/lac",
    "rules.Mondrian": "conformal_rule/mondrian",
    "rules.Normalised": "conformal_rule/normalised",
    "rules.PerClass": "conformal_rule/per_class",
    "rules.RAPS": "conformal_rule/raps",
    "rules.Randomised": "conformal_rule/randomised",
    "runs.Column": "table/column",
    "scale.FromNetwork": "likelihood/from_network",
    "scaling.Scaling": "data/scaling",
    "score.Score": "score/score",
    "selective.ClopperPearson": "selective/clopper_pearson",
    "selective.Hoeffding": "selective/hoeffding",
    "selective.Threshold": "selective/threshold",
    "sghmc.SGHMC": "method/sghmc",
    "sgld.MinibatchMetropolis": "sgmcmc/minibatch_metropolis",
    "sgld.SGLD": "method/sgld",
    "sgnht.SGNHT": "method/sgnht",
    "sources.FullBatch": "data/full_batch",
    "sources.Minibatches": "data/minibatches",
    "stochastic.Stochastic": "posterior/stochastic",
    "stochastic_activations.StochasticActivations": "method/stochastic_activations",
    "storage.Items": "table/items",
    "structures.BlockDiagonal": "structure/block_diagonal",
    "structures.Dense": "structure/dense",
    "structures.Diagonal": "structure/diagonal",
    "structures.Functional": "structure/function_space",
    "structures.LowRank": "structure/low_rank",
    "study.Plan": "active/plan",
    "study.StudyState": "active/state",
    "subset.All": "subset/all",
    "subset.LastLayer": "subset/last_layer",
    "subset.Paths": "subset/paths",
    "svgd.SVGD": "method/svgd",
    "swag.SWAG": "method/swag",
    "tempering.ParallelTempering": "method/parallel_tempering",
    "tuning.Evidence": "tuning/evidence",
    "tuning.PerLayer": "tuning/per_layer",
    "tuning.WholeNetwork": "tuning/whole_network",
    "variational_dropout.LogUniform": "divergence/log_uniform",
    "variational_dropout.VariationalDropout": "method/variational_dropout",
    "vi.VI": "method/vi",
}
"""The names of today, by those that the files hold (which never change)."""

FIELDS: dict[str, dict[str, str]] = {
    "method/nuts": {"scale": "metric", "max_doublings": "max_tree_depth"},
    "method/hmc": {"scale": "metric"},
    "method/mala": {"scale": "metric"},
    "method/metropolis_hastings": {"scale": "metric"},
    "method/adjusted_mclmc": {"scale": "metric"},
    "curvature_kind/monte_carlo_fisher": {"num_samples": "num_targets"},
    "method/sgnht": {"rate": "coupling"},
    "method/vi": {"num_samples": "num_particles"},
    "method/bayes_by_backprop": {"num_samples": "num_particles"},
    "method/concrete_dropout": {"temperature": "relaxation"},
    "method/parallel_tempering": {"hottest": "max_temperature", "path_length": "num_leapfrog"},
}
"""Fields that have other names today, by the name of the class today."""

KINDS = ("setup", "posterior", "study", "comparison", "estimator", "held out")
"""Of bundles that consist of named parts today."""

KEYS = {"setup": "key", "study": "study/key"}
"""Arrays that are parts called key today."""

PHASES = {"adapt": "warmup"}
"""Phases that have other names today."""


def upgrade(name: str, stored: dict[str, Any], cls: type) -> dict[str, Any]:
    """Stored fields under their names of today; what has come since is at its default.

    >>> @dataclasses.dataclass
    ... class Line:
    ...     slope: float
    ...     intercept: int = 0
    >>> upgrade("line", {"slope": 2.0}, Line)
    {'slope': 2.0, 'intercept': 0}
    """
    renamed = {FIELDS.get(name, {}).get(field, field): value for field, value in stored.items()}
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        plain = field.default is None or isinstance(field.default, bool | int | float | str)
        if field.name not in renamed and plain and field.default is not dataclasses.MISSING:
            renamed[field.name] = field.default
    return renamed


def document(kind: str, stored: Any, arrays: dict[str, Any]) -> Any:
    """The document of a bundle as it is written today.

    Parts were one tree, or not wrapped, and the key of a run was a bare array; phases had other names.

    >>> document("estimator", {"@": "dict", "items": [["size", 3]]}, {})
    {'size': {'stored': 3}}
    >>> document("checkpoint", {"cursor": {"num_steps": {"adapt": 3}}}, {})
    {'cursor': {'num_steps': {'warmup': 3}}}
    """
    if kind == "checkpoint":
        return {**stored, "cursor": {name: _renamed(value) for name, value in stored["cursor"].items()}}
    if kind not in KINDS or not isinstance(stored, dict):
        return stored
    parts = dict(stored["items"]) if stored.get("@") == "dict" else stored
    found = {name: _wrapped(part) for name, part in parts.items()}
    if kind in KEYS:
        found["key"] = {"stored": {"@": "key", "name": KEYS[kind], "impl": "threefry2x32"}}
    return found


def _renamed(value: Any) -> Any:
    return {PHASES.get(name, name): each for name, each in value.items()} if isinstance(value, dict) else value


def _wrapped(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict) or "@" in part:
        return {"stored": part}
    if "stored" in part or "missing" in part:
        return part
    return {"stored": {"@": "dict", "items": [list(item) for item in part.items()]}}
