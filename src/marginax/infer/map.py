r"""Maximum a posteriori and maximum likelihood: the best single network.

$\hat\theta = \arg\max_\theta \; \log p(\theta) + \sum_i \log p(y_i \mid f_\theta(x_i))$

A point is not a posterior: predictions carry the noise of the likelihood but no epistemic part, and the summary
says so. It is where ensembles, Laplace, SWAG and samplers start.
"""

from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.training import AbstractTraining
from marginax.model import AbstractModel
from marginax.model.abstract import Params


@register_method(
    "method/map",
    gives="a point",
    use_when="you want one good network; a point, and a start for others",
    cost="1 training run",
    order=20,
)
class MAP(AbstractTraining):
    """Maximum a posteriori.

    The mode is that of the unconstrained parameters (log scales), so learned noise includes its Jacobian.

    Takes what every `AbstractTraining` takes.
    """

    num_epochs: int | None = None  # by position, too

    def objective(
        self, model: AbstractModel, params: Params, batch: Batch, extra: PyTree, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        return model.log_density(params, batch, key=key)


@register_method(
    "method/mle",
    gives="a point",
    use_when="you want the classical fit to compare with; a point",
    cost="1 training run",
    order=10,
)
class MLE(AbstractTraining):
    """Maximum likelihood: as MAP, blind to every prior.

    Takes what every `AbstractTraining` takes.
    """

    num_epochs: int | None = None  # by position, too

    def objective(
        self, model: AbstractModel, params: Params, batch: Batch, extra: PyTree, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        return model.scaled_log_likelihood(params, batch, key=key)
