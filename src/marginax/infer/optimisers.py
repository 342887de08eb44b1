"""Optimisers as plain configuration: what to build is data, so that a run can be saved and resumed."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, cast

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array

from marginax.files import register


@register("schedule/constant")
class Constant(eqx.Module):
    """The same learning rate throughout."""

    def factor(self, progress: Array) -> Array:
        return jnp.ones_like(progress)


@register("schedule/cosine")
class Cosine(eqx.Module):
    """From the full learning rate down to `final` times it along half a cosine, after a linear warm-up.

    Args:
        warmup: fraction of the steps spent warming up.
        final: what is left of the learning rate at the end.
    """

    warmup: float = 0.0
    final: float = 0.0

    def __check_init__(self):
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup must be in [0, 1), got {self.warmup}")
        if not 0 <= self.final <= 1:
            raise ValueError(f"final must be in [0, 1], got {self.final}")

    def factor(self, progress: Array) -> Array:
        """What multiplies the learning rate when this fraction of the steps is done."""
        rise = progress / jnp.maximum(self.warmup, 1e-12)
        along = jnp.clip((progress - self.warmup) / (1.0 - self.warmup), 0.0, 1.0)
        fall = self.final + (1.0 - self.final) * 0.5 * (1.0 + jnp.cos(jnp.pi * along))
        return jnp.where(progress < self.warmup, rise, fall)


Schedule = Constant | Cosine


class AbstractOptimiser(eqx.Module):
    """Builds an Optax transformation that minimises, for a known number of steps."""

    @abc.abstractmethod
    def build(self, num_steps: int | Array) -> optax.GradientTransformationExtraArgs:
        """The transformation."""

    @property
    def has_line_search(self) -> bool:
        """Whether it compares values of the objective, which minibatches and noise make meaningless."""
        return False


def as_optimiser(optimiser: Any) -> Any:
    """An optimiser as it is, a bare Optax transformation in a wrapper."""
    return BareTransformation(optimiser) if isinstance(optimiser, optax.GradientTransformation) else optimiser


def _check_rate(rate: float) -> None:
    if not rate > 0:
        raise ValueError(f"learning_rate must be > 0, got {rate}")


def _scale_by(rate: float | Array, schedule: Schedule, num_steps: int | Array) -> optax.GradientTransformation:
    return optax.scale_by_schedule(lambda count: -rate * schedule.factor(jnp.asarray(count) / num_steps))


@register("optimiser/adam")
class Adam(AbstractOptimiser):
    """Adam (Kingma & Ba, 2015).

    Args:
        learning_rate: of the mean negative log density per example.
        b1: decay of the first moment.
        b2: decay of the second moment.
        schedule: how the learning rate changes over the run.
    """

    learning_rate: float = 5e-3
    b1: float = 0.9
    b2: float = 0.999
    schedule: Schedule = eqx.field(default_factory=Cosine)

    def __check_init__(self):
        _check_rate(self.learning_rate)
        for name, value in (("b1", self.b1), ("b2", self.b2)):
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be in [0, 1), got {value}")

    def build(self, num_steps: int | Array) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(
            optax.chain(optax.scale_by_adam(self.b1, self.b2), _scale_by(self.learning_rate, self.schedule, num_steps))
        )


@register("optimiser/sgd")
class SGD(AbstractOptimiser):
    """Stochastic gradient descent with momentum.

    Args:
        learning_rate: of the mean negative log density per example.
        momentum: in [0, 1); 0 (kept as None) is plain gradient descent.
        schedule: how the learning rate changes over the run.
    """

    learning_rate: float = 0.1
    momentum: float | None = eqx.field(default=0.9, converter=lambda momentum: momentum or None)
    schedule: Schedule = eqx.field(default_factory=Cosine)

    def __check_init__(self):
        _check_rate(self.learning_rate)
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")

    def build(self, num_steps: int | Array) -> optax.GradientTransformationExtraArgs:
        """Heavy-ball momentum with the schedule; a memory that is not needed would cost a pass over the weights."""
        scale = _scale_by(self.learning_rate, self.schedule, num_steps)
        memory = optax.identity() if self.momentum is None else optax.trace(self.momentum)
        return optax.with_extra_args_support(optax.chain(memory, scale))


@register("optimiser/lbfgs")
class LBFGS(AbstractOptimiser):
    """Limited-memory BFGS with a zoom line search: for full batches of small problems, to high precision.

    Args:
        memory_size: how many past gradients shape the step.
    """

    memory_size: int = 20

    def __check_init__(self):
        if self.memory_size < 1:
            raise ValueError(f"memory_size must be >= 1, got {self.memory_size}")

    def build(self, num_steps: int | Array) -> optax.GradientTransformationExtraArgs:
        return optax.lbfgs(memory_size=self.memory_size)

    has_line_search: ClassVar[bool] = True


@register("optimiser/optax")
class Optax(AbstractOptimiser):
    """Any optimiser of Optax, by the function that makes it: files hold its name and options.

    Args:
        factory: such as `optax.adamw` or `optax.lion`; one of your own needs `mx.register_function`.
        learning_rate: of the mean negative log density per example; None for a factory that takes none.
        schedule: how the learning rate changes over the run.
        options: what else the factory takes, by name.

    >>> import marginax as mx
    >>> import optax
    >>> mx.infer.MAP(optimiser=mx.infer.Optax(optax.adamw, learning_rate=1e-3, weight_decay=1e-4)).optimiser.options
    {'weight_decay': 0.0001}
    """

    factory: Callable[..., optax.GradientTransformation]
    learning_rate: float | None
    schedule: Schedule
    options: dict[str, Any]

    def __init__(self, factory: Any, learning_rate: Any = None, *, schedule: Schedule | None = None, **options: Any):
        """Store, and build once, so that a wrong option is refused here."""
        if isinstance(factory, optax.GradientTransformation) or not callable(factory):
            raise TypeError(f"factory must be a function of optax such as optax.adamw, got {factory!r}")
        if learning_rate is not None:
            _check_rate(learning_rate)
        self.factory, self.learning_rate, self.options = cast(Any, factory), learning_rate, options
        self.schedule = Constant() if schedule is None else schedule
        if not isinstance(self.build(1), optax.GradientTransformation):
            raise TypeError(f"factory must return an optax.GradientTransformation, got {factory!r}")

    def build(self, num_steps: int | Array) -> optax.GradientTransformationExtraArgs:
        options = dict(self.options)
        if self.learning_rate is not None:
            rate, schedule = self.learning_rate, self.schedule
            options["learning_rate"] = lambda count: rate * schedule.factor(jnp.asarray(count) / num_steps)
        return optax.with_extra_args_support(self.factory(**options))

    @property
    def has_line_search(self) -> bool:
        return self.factory is optax.lbfgs


class BareTransformation(AbstractOptimiser):
    """A transformation as Optax made it: its functions have no names, so files cannot hold it."""

    transformation: optax.GradientTransformation

    not_stored: ClassVar[str] = "give mx.infer.Optax(optax.adamw, learning_rate=...), which is stored by name"

    def build(self, num_steps: int | Array) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(self.transformation)
