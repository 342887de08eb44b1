"""Bugs that networks can have, each planted alone and caught by a check of the suite."""

import jax
import jax.numpy as jnp
import pytest
from tests.mutations.bug import Bug, assert_caught
from tests.nets import test_conv_coders as coders
from tests.nets import test_layers_of_sequences as shared
from tests.nets import test_recurrent as recurrent
from tests.nets import test_resnet as residual
from tests.nets import test_temporal as temporal
from tests.nets import test_transformer as transformers

from marginax.infer.vi.gradients import LocalReparameterisation
from marginax.nets import (
    GRU,
    CausalConvolution,
    LayerKind,
    LocalNormal,
    Patches,
    Pointwise,
    conv_coders,
    layers,
    normalisation,
    transformer,
)
from marginax.nets.sequences import SequenceInput

READ, ATTEND, SHUFFLE = SequenceInput.__call__, transformer.attend, conv_coders.pixel_shuffle
LAGGED, CUT = CausalConvolution.lagged, Patches.__call__


def mask_ignored(self, x, mask=None):
    features, present = READ(self, x, mask)
    return features, jnp.ones_like(present)


def everything_seen(queries, keys, values, seen):
    return ATTEND(queries, keys, values, jnp.ones_like(seen))


def reset_before_the_product(self, state, gates):
    reset, update, new = jnp.split(gates, 3)
    of_reset, of_update, of_new = jnp.split(self.recurrent_weight, 3)
    keep = jax.nn.sigmoid(update + of_update @ state)
    bias = self.recurrent_bias.reshape(-1, *(1 for _ in state.shape[1:]))
    new = jnp.tanh(new + of_new @ (jax.nn.sigmoid(reset + of_reset @ state) * state) + bias)
    return new + keep * (state - new)


def blocks_transposed(x):
    return SHUFFLE(x.swapaxes(1, 2)).swapaxes(1, 2)


def outputs_drawn_one_by_one(self, layer, scale, shift, is_shared):
    return LocalNormal(scale)


def one_step_ahead(self, x):
    return LAGGED(self, jnp.roll(x, -1, axis=1))


def dilation_forgotten(self, x):
    return LAGGED(CausalConvolution(*self.weight.shape[1::-1], self.weight.shape[2], key=0), x)


def by_column(self, x):
    steps = CUT(self, x)
    return steps.reshape(self.in_shape[1] // self.size, -1, steps.shape[1]).swapaxes(0, 1).reshape(steps.shape)


def mean_of_squares_less_square_of_mean(norm, x):
    mean, square = x.mean((1, 2), keepdims=True), (x**2).mean((1, 2), keepdims=True)
    return normalisation._affine(norm, (x - mean) * jax.lax.rsqrt(jnp.maximum(square - mean**2, 0.0) + norm.eps))


def sequence():
    return jnp.asarray(recurrent.sequences(1, seed=1)[0])[: transformers.STEPS]


BUGS = [
    Bug(
        "a mask ignored",
        SequenceInput,
        "__call__",
        mask_ignored,
        lambda: recurrent.test_padding_changes_nothing_whatever_is_there(GRU, False),
    ),
    Bug(
        "the reset gate before the product",
        GRU,
        "advance",
        reset_before_the_product,
        lambda: recurrent.test_states_equal_those_of_a_loop(GRU, False),
    ),
    Bug(
        "the future is seen",
        transformer,
        "attend",
        everything_seen,
        lambda: transformers.test_the_future_changes_nothing_if_causal(sequence()),
    ),
    Bug(
        "padding is seen",
        transformer,
        "attend",
        everything_seen,
        lambda: transformers.test_padding_changes_nothing_whatever_is_there(False, sequence()),
    ),
    Bug(
        "pixels of a block transposed",
        conv_coders,
        "pixel_shuffle",
        blocks_transposed,
        coders.test_decoder_equals_the_plain_network,
    ),
    Bug(
        "outputs that share weights drawn one by one",
        LocalReparameterisation,
        "rule",
        outputs_drawn_one_by_one,
        lambda: shared.test_the_joint_law_of_two_steps_is_that_of_shared_weights(shared.Mapped()),
    ),
    Bug(
        "a convolution that looks ahead",
        CausalConvolution,
        "lagged",
        one_step_ahead,
        temporal.test_an_output_depends_on_as_many_steps_as_it_says_and_on_none_that_come_later,
    ),
    Bug(
        "dilation forgotten",
        CausalConvolution,
        "lagged",
        dilation_forgotten,
        temporal.test_an_output_depends_on_as_many_steps_as_it_says_and_on_none_that_come_later,
    ),
    Bug(
        "patches column by column",
        Patches,
        "__call__",
        by_column,
        temporal.test_patches_are_squares_of_the_image,
    ),
    Bug(
        "groups forgotten, and a variance that cancels",
        normalisation,
        "group_norm",
        mean_of_squares_less_square_of_mean,
        lambda: residual.test_group_normalisation_is_that_of_equinox_where_means_are_large(3e3, 1.0),
    ),
    Bug(
        "padding counted in Kronecker factors",
        layers,
        "_kinds",
        [LayerKind(Pointwise, layers._places), *layers._kinds],
        lambda: shared.test_kronecker_factors_never_count_padding_as_data(True),
    ),
]
DEFAULT = ("a mask ignored",)


@pytest.mark.parametrize(
    "bug", [pytest.param(b, id=b.name, marks=[] if b.name in DEFAULT else pytest.mark.slow) for b in BUGS]
)
def test_a_planted_bug_is_caught(bug):
    assert_caught(bug, bug.check)
