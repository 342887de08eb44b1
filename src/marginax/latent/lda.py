r"""Latent Dirichlet allocation (Blei, Ng & Jordan, 2003): documents are mixtures of topics, topics of words.

$\beta_k \sim \text{Dirichlet}(\eta), \quad \theta_i \sim \text{Dirichlet}(\alpha), \quad
z_{in} \sim \theta_i, \quad w_{in} \sim \beta_{z_{in}}$

The topics of words are summed out; the proportions of a document have a Dirichlet belief $\gamma_i$ of their own,

$\gamma_{ik} = \alpha + s_{ik} \sum_w c_{iw} \frac{b_{kw}}{\sum_j s_{ij} b_{jw}}, \quad
s = e^{E \log \theta}, \; b = e^{E \log \beta},$

repeated until it stays. Documents are rows of counts, so that all of it is products of matrices.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.blocks import sum_of_blocks
from marginax._kernels.gamma import log_gamma
from marginax.data import AbstractSource, Batch, Rows
from marginax.files import register
from marginax.latent.coins import check_counts
from marginax.latent.mixture import check_num, first_guess
from marginax.latent.queries import AbstractQueries, as_batch, as_rows, averaged
from marginax.latent.simplex import Dirichlet
from marginax.model.abstract import Params
from marginax.model.conjugate import AbstractConjugate, Expected, naturals

_MOST_DOCUMENTS = 4096  # for a first guess
_MOST_SWEEPS = 100
_CHANGE = 1e-3  # of a proportion's count, on average, below which documents have settled
_SMALL = 1e-30


@dataclass(frozen=True)
class LDAQueries(AbstractQueries):
    """What posteriors of topic models can be asked."""

    def topics(self) -> np.ndarray:
        """Probabilities of words in the middle of the posterior, (topic, word)."""
        model: Any = self.posterior.model
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), self.posterior.starting_points(1))
        return np.exp(np.asarray(model.topics_prior.natural(params)))

    def proportions(self, counts: Any) -> np.ndarray:
        """The mean proportions of topics in each document, (document, topic)."""
        model: Any = self.posterior.model
        return averaged(model.proportions, naturals(self.posterior), as_batch(model, counts).data)

    def perplexity(self, counts: Any) -> float:
        """Exponential of minus the bound of the log likelihood per word; less is better.

        Topics are taken as known in the middle of the posterior, proportions of new documents are inferred.
        """
        model: Any = self.posterior.model
        batch = as_batch(model, counts)
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), self.posterior.starting_points(1))
        total = _total(model, params, batch)
        return float(np.exp(-float(total) / float(np.sum(np.asarray(batch.data, np.float64)))))


@eqx.filter_jit
def _total(model: "LDA", params: Params, batch: Batch) -> Array:
    return model.scaled_log_likelihood(params, batch)


@register("latent/lda")
class LDA(AbstractConjugate):
    """Topics of documents that are rows of word counts.

    The log likelihood of a document is a bound, the proportions of its topics having a belief of their own. Posteriors
    have `topics`, `proportions`, `perplexity` and `log_likelihood`. `mx.infer.CoordinateAscent(batch_size=...)` is
    online variational Bayes (Hoffman, Blei & Bach, 2010).

    Args:
        num_topics: K.
        proportions: prior of the topics of a document; by default `Dirichlet(1 / K)`.
        topics: prior of the words of a topic; by default `Dirichlet(1 / K)`.

    >>> import marginax as mx
    >>> counts = np.array([[5, 4, 0, 0], [3, 6, 0, 0], [0, 0, 7, 2], [0, 0, 4, 4]])
    >>> lda = mx.fit(mx.latent.LDA(2), counts, mx.infer.CoordinateAscent(50), num_chains=4, key=0)
    >>> shares = lda.proportions(counts).round(0)
    >>> bool((shares[0] == shares[1]).all() and (shares[0] != shares[2]).all())
    True
    """

    num_topics: int
    proportions_prior: Dirichlet
    topics_prior: Dirichlet

    queries: ClassVar[type] = LDAQueries

    def __init__(self, num_topics: int, proportions: Dirichlet | None = None, topics: Dirichlet | None = None):
        """Check the number."""
        check_num("num_topics", num_topics)
        self.num_topics = num_topics
        self.proportions_prior = Dirichlet(1.0 / num_topics) if proportions is None else proportions
        self.topics_prior = Dirichlet(1.0 / num_topics) if topics is None else topics

    # ---- data

    def read(self, data: Any) -> Rows:
        """One array of counts."""
        return as_rows(data)

    def check(self, source: AbstractSource) -> None:
        self.check_rows(source.examples(source.spec.num_examples))

    def check_rows(self, counts: Any) -> None:
        """Raise if these are not counts of words."""
        if np.ndim(counts) != 2 or np.shape(counts)[1] < 2:
            raise ValueError(f"data must have shape (documents, words) with 2 words or more, got {np.shape(counts)}")
        check_counts(counts)
        empty = np.flatnonzero(np.sum(counts, axis=1) == 0)
        if len(empty):
            raise ValueError(f"data must have a word in every document, got none in row {empty[0]}: leave it out")

    def seed(self, batch: Batch, *, key: PRNGKeyArray) -> PyTree:
        """Random topics near the words that all documents have."""
        counts = jnp.asarray(batch.data, jax.dtypes.canonicalize_dtype(float))
        noise = jnp.exp(log_gamma(key, jnp.full((self.num_topics, counts.shape[1]), 10.0, counts.dtype))) / 10.0
        return noise * jnp.sum(counts) / (self.num_topics * counts.shape[1])

    # ---- the density

    def init(self, source: AbstractSource) -> Params:
        """Random topics."""
        return first_guess(self, source.examples(min(source.spec.num_examples, _MOST_DOCUMENTS)))

    def log_prior(self, params: Params) -> Float[Array, ""]:
        return self.topics_prior.log_prior(params)

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        """A bound; its gradient is that at the best proportions."""
        reconstruction, complexity, _ = self._documents(self.natural(params), batch.data)
        return reconstruction - complexity

    def proportions(self, natural: Float[Array, "k v"], counts: Array) -> Float[Array, "n k"]:
        """Mean proportions of topics in documents."""
        belief = self._settled(jnp.exp(natural), jnp.asarray(counts, natural.dtype))
        return belief / jnp.sum(belief, 1, keepdims=True)

    def _documents(self, natural: Float[Array, "k v"], counts: Array) -> tuple[Array, Array, Float[Array, "k v"]]:
        """Parts of the bound of every document, and expected counts of words in topics, over their probability."""
        words, counts = jnp.exp(natural), jnp.asarray(counts, natural.dtype)
        belief = jax.lax.stop_gradient(self._settled(words, counts))
        shares = jnp.exp(self.proportions_prior.expected_natural(belief))
        chance = shares @ words + _SMALL
        reconstruction = jnp.sum(counts * jnp.log(chance), 1)
        complexity = jax.vmap(self.proportions_prior.divergence)(belief)
        return reconstruction, complexity, shares.T @ (counts / chance)

    def _settled(self, words: Float[Array, "k v"], counts: Float[Array, "n v"]) -> Float[Array, "n k"]:
        """Beliefs about the proportions of documents, repeated until they stay."""
        prior = jnp.asarray(1.0 / self.num_topics, words.dtype)
        if self.proportions_prior.concentration is not None:
            prior = jnp.asarray(self.proportions_prior.concentration, words.dtype)

        def sweep(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            belief, _, step = carry
            shares = jnp.exp(self.proportions_prior.expected_natural(belief))
            new = prior + shares * ((counts / (shares @ words + _SMALL)) @ words.T)
            return new, jnp.mean(jnp.abs(new - belief)), step + 1

        def moves(carry: tuple[Array, Array, Array]) -> Array:
            return (carry[1] > _CHANGE) & (carry[2] < _MOST_SWEEPS)

        start = jnp.ones((len(counts), self.num_topics), words.dtype)
        return jax.lax.while_loop(moves, sweep, (start, jnp.asarray(jnp.inf, words.dtype), jnp.asarray(0)))[0]

    # ---- closed form

    def expect(self, natural: Float[Array, "k v"], batch: Batch) -> Expected:
        def block(counts: Array, counted: Float[Array, " b"]) -> Expected:
            reconstruction, complexity, ratio = self._documents(natural, counts * counted[:, None].astype(counts.dtype))
            parts = jnp.sum(counted * reconstruction), jnp.sum(counted * complexity)
            return Expected(jnp.exp(natural) * ratio, *parts)

        return sum_of_blocks(block, batch.data)

    def natural(self, params: Params) -> Float[Array, "k v"]:
        return self.topics_prior.natural(params)

    def expected_natural(self, belief: PyTree) -> Float[Array, "k v"]:
        return self.topics_prior.expected_natural(belief)

    def conjugate(self, statistics: PyTree) -> PyTree:
        return self.topics_prior.conjugate(statistics)

    def maximise(self, statistics: PyTree) -> Params:
        return self.topics_prior.maximise(statistics)

    def divergence(self, belief: PyTree) -> Float[Array, ""]:
        return self.topics_prior.divergence(belief)

    def draw(self, belief: PyTree, *, key: PRNGKeyArray) -> Params:
        return self.topics_prior.draw(belief, key=key)

    def centre(self, belief: PyTree) -> Params:
        return self.topics_prior.centre(belief)
