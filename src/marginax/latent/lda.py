r"""Latent Dirichlet allocation (Blei, Ng & Jordan, 2003): documents are mixtures of topics, topics of words.

$\beta_k \sim \text{Dirichlet}(\eta), \quad \theta_i \sim \text{Dirichlet}(\alpha), \quad
z_{in} \sim \theta_i, \quad w_{in} \sim \beta_{z_{in}}$

The topics of words are summed out; the proportions of a document have a Dirichlet belief $\gamma_i$ of their own,

$\gamma_{ik} = \alpha + s_{ik} \sum_w c_{iw} \frac{b_{kw}}{\sum_j s_{ij} b_{jw}}, \quad
s = e^{E \log \theta}, \; b = e^{E \log \beta},$

repeated until it stays. Documents are kept as the words that are in them (`documents`), and take their turns in blocks
of about one length. Where we differ from online variational Bayes (Hoffman, Blei & Bach, 2010): a block ends when the
proportions of its documents stay on average, where theirs asks it of every document.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.gamma import log_gamma
from marginax.data import AbstractSource, Batch, Rows
from marginax.files import register
from marginax.latent.documents import as_documents, check_documents, exp_digamma, over_blocks, settled
from marginax.latent.mixture import check_num, first_guess
from marginax.latent.queries import AbstractQueries, as_batch, averaged
from marginax.latent.simplex import Dirichlet
from marginax.model.abstract import Params
from marginax.model.conjugate import AbstractConjugate, Expected, naturals

_MOST_DOCUMENTS = 4096  # for a first guess
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
        return float(np.exp(-float(total) / float(np.sum(np.asarray(batch.data["count"], np.float64)))))


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
        num_words: V; by default that of the data.

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
    num_words: int | None = None

    queries: ClassVar[type] = LDAQueries

    def __init__(
        self,
        num_topics: int,
        proportions: Dirichlet | None = None,
        topics: Dirichlet | None = None,
        num_words: int | None = None,
    ):
        """Check the number."""
        check_num("num_topics", num_topics)
        self.num_topics = num_topics
        self.proportions_prior = Dirichlet(1.0 / num_topics) if proportions is None else proportions
        self.topics_prior = Dirichlet(1.0 / num_topics) if topics is None else topics
        self.num_words = num_words

    # ---- data

    def read(self, data: Any) -> Rows:
        """Counts (document, word), an array or a sparse matrix, as the words of every document."""
        return data if isinstance(data, Rows) else Rows(as_documents(data))

    def check(self, source: AbstractSource) -> None:
        self.check_rows(source.examples(source.spec.num_examples))

    def check_rows(self, rows: Any) -> None:
        """Raise if these are not counts of the words of the model."""
        check_documents(rows, self.num_words)

    def adapted_to(self, source: AbstractSource) -> "LDA":
        num_words = int(source.examples(1)["vocabulary"][0])
        return LDA(self.num_topics, self.proportions_prior, self.topics_prior, num_words)

    def seed(self, batch: Batch, *, key: PRNGKeyArray) -> PyTree:
        """Random topics near the words that all documents have."""
        if self.num_words is None:
            raise ValueError("num_words must be given where the model has not seen data")
        total = jnp.sum(jnp.asarray(batch.data["count"], jax.dtypes.canonicalize_dtype(float)))
        shape = (self.num_topics, self.num_words)
        noise = jnp.exp(log_gamma(key, jnp.full(shape, 10.0, total.dtype))) / 10.0
        return noise * total / (self.num_topics * self.num_words)

    # ---- the density

    def init(self, source: AbstractSource) -> Params:
        """Random topics."""
        return first_guess(self, source.examples(min(source.spec.num_examples, _MOST_DOCUMENTS)))

    def log_prior(self, params: Params) -> Float[Array, ""]:
        return self.topics_prior.log_prior(params)

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        """A bound; its gradient is that at the best proportions."""
        words = jnp.exp(self.natural(params))
        belief = jax.lax.stop_gradient(self._settled(jax.lax.stop_gradient(words), batch.data))
        chance = jnp.exp(self.proportions_prior.expected_natural(belief)) @ words
        logs = jnp.log(jnp.take_along_axis(chance, batch.data["word"], axis=1) + _SMALL)
        return jnp.sum(batch.data["count"] * logs, 1) - self._complexity(belief)

    def proportions(self, natural: Float[Array, "k v"], rows: PyTree) -> Float[Array, "n k"]:
        """Mean proportions of topics in documents."""
        belief = self._settled(jnp.exp(natural), rows)
        return belief / jnp.sum(belief, 1, keepdims=True)

    def _complexity(self, belief: Float[Array, "n k"]) -> Float[Array, " n"]:
        return jax.vmap(self.proportions_prior.divergence)(belief)

    def _settled(self, words: Float[Array, "k v"], rows: PyTree) -> Float[Array, "n k"]:
        """Beliefs about the proportions of documents."""

        def block(total: None, word: Array, count: Array) -> tuple[None, Array]:
            return total, settled(words.T[word], count, self._prior(words))

        return over_blocks(block, None, rows, words.dtype)[1]

    def _prior(self, words: Array) -> Array:
        alpha = self.proportions_prior.concentration
        return jnp.asarray(1.0 / self.num_topics if alpha is None else alpha, words.dtype)

    # ---- closed form

    def expect(self, natural: Float[Array, "k v"], batch: Batch) -> Expected:
        words = jnp.exp(natural)

        def block(total: tuple[Array, Array], word: Array, count: Array) -> tuple[tuple[Array, Array], Array]:
            near = words.T[word]
            belief = settled(near, count, self._prior(words))
            shares = exp_digamma(belief) / exp_digamma(jnp.sum(belief, 1, keepdims=True))
            chance = jnp.einsum("nlk,nk->nl", near, shares) + _SMALL
            ratio = jnp.zeros((len(word), words.shape[1]), words.dtype)
            ratio = ratio.at[jnp.arange(len(word))[:, None], word].add(count / chance)
            return (total[0] + shares.T @ ratio, total[1] + jnp.sum(count * jnp.log(chance))), belief

        start = jnp.zeros_like(words), jnp.zeros((), words.dtype)
        (ratios, reconstruction), belief = over_blocks(block, start, batch.data, words.dtype)
        return Expected(words * ratios, reconstruction, jnp.sum(self._complexity(belief)))

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
