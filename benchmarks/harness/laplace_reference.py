r"""Laplace approximations by laplace-torch of a network whose weights are given, for comparison with ours.

    python -m benchmarks.harness.laplace_reference in.npz out.npz

`in.npz` holds x, y, x_test, weight_0, bias_0, weight_1, ... (weights as (out, in)), activation ("tanh" or "relu"),
likelihood ("regression" or "classification"), sigma_noise and prior_precision. `out.npz` has, under names that begin
with the subset and the structure such as `all_kron_`: log_evidence; mean and variance, the moments of the outputs
without noise; and for classification probit and bridge, the probabilities. All in float64.

What its quantities are, read off its source (0.3, default backend CurvlinopsGGN, temperature 1); $P_0$ is the prior's
precision, $f$ the network, $\Lambda_n$ the Hessian of the loss in the outputs ($I/\sigma^2$, or $diag(p) - pp^T$):

- Evidence: $\log p(D|\theta) - (\log\det P - \log\det P_0 + \theta^T P_0\theta)/2$. This is
  $\log p(D|\theta) + \log p(\theta) + d/2 \log 2\pi - 1/2 \log\det P$ in full: the prior's own $-d/2 \log 2\pi$ cancels
  the other, its $1/2 \log\det P_0$ is there, and so is the likelihood's $-nk \log(\sigma\sqrt{2\pi})$. No gradient
  enters, so that it is defined away from the mode.
- full: $P = \sum_n J_n^T\Lambda_n J_n + P_0$. diag: the diagonal of this $P$.
- kron: blocks, one per array. A weight has $G \otimes A/N + P_0$ with $A = \sum_n a_n a_n^T$ of the layer's inputs,
  without a 1 for the bias, and $G = \sum_n g_n^T\Lambda_n g_n$ of its outputs, $g_n = \partial f/\partial s_n$. A bias
  has $G + P_0$, and no covariance with its weight. $P_0$ is added to the products of eigenvalues: damping, which would
  add $\sqrt{P_0}$ to each, is off by default (and is lost when the factors are rescaled even if it is on).
- last_layer: the same for the weight and bias of the last module that is run in the first forward pass, which must be
  linear. d, $P_0$, $\theta$ and the prior in the evidence are those of this layer alone.
- probit: $softmax(f_k / \sqrt{1 + \pi/8 V_{kk}})$. bridge: f and V are first conditioned on outputs that sum to zero,
  $f - V1 (1^Tf)/(1^TV1)$ and $V - V11^TV/(1^TV1)$; then
  $\alpha_k = (1 - 2/K + e^{f_k} \sum_j e^{-f_j} / K^2) / V_{kk}$, and the probabilities are $\alpha / \sum_k \alpha_k$.
"""

import sys
from typing import Any

import numpy as np

SUBSETS = ("all", "last_layer")
STRUCTURES = ("diag", "kron", "full")


def main(source: str, target: str) -> None:
    """Read a network and data, fit every structure on every subset, write what comes out."""
    with np.load(source) as file:
        given = {name: file[name] for name in file.files}
    results = {}
    for subset in SUBSETS:
        for structure in STRUCTURES:
            found = approximate(given, subset, structure)
            results |= {f"{subset}_{structure}_{name}": value for name, value in found.items()}
    np.savez(target, **results)


def approximate(given: dict[str, np.ndarray], subset: str, structure: str) -> dict[str, np.ndarray]:
    """Evidence and predictions of one approximation."""
    torch, Laplace = load_peer()
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_default_dtype(torch.float64)  # of the identity that the dense curvature is multiplied with
    likelihood = str(given["likelihood"])
    x, x_test = torch.from_numpy(given["x"]).double(), torch.from_numpy(given["x_test"]).double()
    y = torch.from_numpy(given["y"])
    y = y.long() if likelihood == "classification" else y.double().reshape(len(x), -1)
    approximation = Laplace(
        network(given),
        likelihood,
        subset_of_weights=subset,
        hessian_structure=structure,
        sigma_noise=float(given["sigma_noise"]) if likelihood == "regression" else 1.0,
        prior_precision=float(given["prior_precision"]),
    )
    approximation.fit(DataLoader(TensorDataset(x, y), batch_size=32))
    mean, variance = approximation._glm_predictive_distribution(x_test)
    found = {"log_evidence": approximation.log_marginal_likelihood(), "mean": mean, "variance": variance}
    if likelihood == "classification":
        for link in ("probit", "bridge"):
            found[link] = approximation(x_test, pred_type="glm", link_approx=link)
    return {name: value.detach().numpy() for name, value in found.items()}


def load_peer() -> tuple[Any, Any]:
    """PyTorch and `laplace.Laplace`."""
    import torch

    # It imports torchvision, whose wheel expects operators that the CPU build of PyTorch does not have.
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from laplace import Laplace

    return torch, Laplace


def network(given: dict[str, np.ndarray]) -> Any:
    """The network with the given weights."""
    import torch

    layers: list[Any] = []
    activation = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[str(given.get("activation", "tanh"))]
    for i in range(sum(name.startswith("weight_") for name in given)):
        weight, bias = torch.from_numpy(given[f"weight_{i}"]), torch.from_numpy(given[f"bias_{i}"])
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0]).double()
        with torch.no_grad():
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        layers += [linear, activation()]
    return torch.nn.Sequential(*layers[:-1])


if __name__ == "__main__":
    main(*sys.argv[1:])
