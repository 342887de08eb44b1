"""A linear Gaussian autoencoder, of which everything is known: p(x) = N(b, W W' + s^2 I)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import marginax as mx
from marginax.data import Batch
from marginax.latent import VAE, FullNormal
from marginax.model.model import Params

NOISE = 0.6
NUM, SIZE, LATENTS = 6, 5, 2


class Truth:
    """Loadings, offsets, examples, and what follows from them."""

    def __init__(self, seed=0, num=NUM):
        rng = np.random.default_rng(seed)
        self.w, self.b = rng.normal(size=(SIZE, LATENTS)), rng.normal(size=SIZE)
        noise = NOISE * rng.normal(size=(num, SIZE))
        self.x = rng.normal(size=(num, LATENTS)) @ self.w.T + self.b + noise

    @property
    def covariance(self):
        return self.w @ self.w.T + NOISE**2 * np.eye(SIZE)

    def evidence(self, x=None):
        return stats.multivariate_normal(self.b, self.covariance).logpdf(self.x if x is None else x)

    def posterior(self):
        """Gain and covariance of latents given an example."""
        covariance = np.linalg.inv(np.eye(LATENTS) + self.w.T @ self.w / NOISE**2)
        return covariance @ self.w.T / NOISE**2, covariance

    def encoder(self, *, shift=0.0, widen=0.0, correlated=True):
        """A linear network whose outputs do not depend on x but for the means; exact unless it is moved."""
        gain, covariance = self.posterior()
        factor = np.linalg.cholesky(covariance)
        rest = [np.log(np.diag(factor)) + widen]
        if correlated:
            rest.append(factor[np.tril_indices(LATENTS, -1)])
        weight = np.concatenate([gain, np.zeros((sum(map(len, rest)), SIZE))])
        bias = np.concatenate([-gain @ self.b + shift, *rest])
        return linear(weight, bias)

    def model(self, encoder=None, **more):
        encoder = self.encoder() if encoder is None else encoder
        kind = {"latent_posterior": FullNormal()} | more
        likelihood = mx.likelihoods.Gaussian(scale=NOISE)
        model = VAE(encoder, linear(self.w, self.b), LATENTS, likelihood=likelihood, **kind)
        return model.adapted_to_rows({"x": self.x})

    def rows(self, num=1):
        """Every example `num` times."""
        return {"x": jnp.asarray(np.repeat(self.x, num, axis=0), float)}


def linear(weight, bias):
    net = mx.nets.MLP(weight.shape[1], (), weight.shape[0], key=0)
    leaves = jnp.asarray(weight, float), jnp.asarray(bias, float)
    return eqx.tree_at(lambda n: (n.layers[0].weight, n.layers[0].bias), net, leaves)


def params_of(model):
    """The weights that the networks of the model have."""
    return model.core.initial(SIZE)


def posterior_of(model):
    """All mass on these weights."""
    return mx.posterior.Draws(model, jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], params_of(model)))


def batch_of(rows):
    num = len(rows["x"])
    return Batch(rows, jnp.arange(num), num)


@eqx.filter_jit
def bounds_of(model, params, rows, key):
    return model.log_likelihood(params, batch_of(rows), key=key)


def z_score(values, expected):
    """How many standard errors the mean over the first axis is from what is expected."""
    values = np.asarray(values, np.float64)
    return (values.mean(0) - expected) / (values.std(0, ddof=1) / np.sqrt(len(values)))


__all__ = ["LATENTS", "NOISE", "NUM", "SIZE", "Params", "Truth", "bounds_of", "linear", "params_of", "posterior_of"]
