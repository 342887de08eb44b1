"""A posterior with its calibrator: predictions come calibrated, and both are saved together."""

from typing import Any

from marginax._keys import Key
from marginax.calibrate.calibrator import AbstractCalibrator
from marginax.files import register
from marginax.posterior import AbstractPosterior, AbstractWrapped, Summary
from marginax.predict import MAX_BYTES, Predictor


@register("posterior/calibrated")
class Calibrated(AbstractWrapped):
    """A posterior whose predictions go through a calibrator; save it, and `mx.load` brings both back.

    Only predictions change: draws, their likelihoods (`loo`, `waic`) and the evidence are those of the one inside.

    Args:
        posterior: that predicts.
        calibrator: a fitted one, from `recalibrate`.

    >>> import jax, marginax as mx, numpy as np
    >>> model = mx.Model(mx.nets.MLP(1, (), 2, key=0), likelihood=mx.likelihoods.Categorical())
    >>> params = jax.tree.map(lambda leaf: leaf[None, None], model.initial(2))
    >>> spec = mx.data.DataSpec(x_shape=(1,), y_shape=(), num_examples=9)
    >>> posterior = mx.posterior.Draws(model, params, spec=spec)
    >>> softer = Calibrated(posterior, mx.calibrate.Temperature(temperature=2.0, num_classes=2))
    >>> x = np.ones((1, 1))
    >>> bool(softer.predict(x).confidence[0] < posterior.predict(x).confidence[0])
    True
    """

    posterior: AbstractPosterior
    calibrator: AbstractCalibrator

    def __check_init__(self):
        if not isinstance(self.posterior, AbstractPosterior):
            raise TypeError(f"posterior must be one that mx.fit returned, got {type(self.posterior).__name__}")
        if not isinstance(self.calibrator, AbstractCalibrator) or not self.calibrator.is_fitted:
            raise TypeError(f"calibrator must be what mx.calibrate.recalibrate returned, got {self.calibrator!r}")

    def predict(
        self, x: Any, *, num_samples: int | None = None, key: Key | None = None, max_bytes: int = MAX_BYTES
    ) -> Any:
        """The calibrated prediction at new inputs; arguments as for any posterior."""
        return self.calibrator(self.posterior.predict(x, num_samples=num_samples, key=key, max_bytes=max_bytes))

    def predictor(
        self,
        x_shape: tuple[int, ...],
        *,
        num_samples: int | None = None,
        key: Key | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Predictor:
        inner = self.posterior.predictor(x_shape, num_samples=num_samples, key=key, max_bytes=max_bytes)
        return inner.then(self.calibrator)

    def describe(self) -> str:
        return f"{self.posterior.describe()}, calibrated by {type(self.calibrator).__name__}"

    def summary(self) -> Summary:
        """That of the posterior inside, with a line about the calibrator."""
        inner = self.posterior.summary()
        return Summary((*inner.lines, f"calibrated {type(self.calibrator).__name__}"), inner.warnings)
