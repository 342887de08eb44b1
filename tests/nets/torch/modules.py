"""Modules of PyTorch that conversion is tested with: networks, and one for every group of operations.

`python -m tests.nets.torch.modules` (with PyTorch) writes what the tests without it read: the networks as data, inputs,
and what PyTorch makes of them.
"""

import math
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "torch"
NUM = 3


def networks():
    """By name: a module and inputs."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, num_in, num_out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(num_in, num_out, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(num_out)
            self.conv2 = nn.Conv2d(num_out, num_out, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(num_out)
            self.down = None
            if stride > 1 or num_in != num_out:
                self.down = nn.Sequential(nn.Conv2d(num_in, num_out, 1, stride, bias=False), nn.BatchNorm2d(num_out))

        def forward(self, x):
            h = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(h + (x if self.down is None else self.down(x)))

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 4, 3, 1, 1, bias=False)
            self.bn1, self.pool = nn.BatchNorm2d(4), nn.MaxPool2d(3, 2, 1)
            self.layer1, self.layer2 = nn.Sequential(Block(4, 4, 1)), nn.Sequential(Block(4, 8, 2))
            self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 3)

        def forward(self, x):
            h = self.pool(torch.relu(self.bn1(self.conv1(x))))
            return self.fc(self.avgpool(self.layer2(self.layer1(h))).flatten(1))

    class Recurrent(nn.Module):
        def __init__(self, cls, **options):
            super().__init__()
            self.rnn = cls(3, 4, **options)
            self.fc = nn.Linear(8 if options.get("bidirectional") else 4, 2)
            self.batch_first = options.get("batch_first", False)

        def forward(self, x):
            x = x if self.batch_first else x.transpose(0, 1)
            h, _ = self.rnn(x)
            return self.fc(h[:, -1] if self.batch_first else h[-1])

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inputs = nn.Linear(3, 8)
            layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, "gelu", batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.fc = nn.Linear(8, 2)

        def forward(self, x):
            return self.fc(self.encoder(self.inputs(x)).mean(1))

    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(9, 8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.norm = nn.LayerNorm(8)
            self.head = nn.Linear(8, 9, bias=False)
            self.head.weight = self.embed.weight
            self.register_buffer("mask", torch.ones(5, 5, dtype=torch.bool).triu(1), persistent=False)

        def forward(self, tokens):
            h = self.embed(tokens)
            h = h + self.attention(h, h, h, attn_mask=self.mask, need_weights=False)[0]
            return self.head(self.norm(h)).flatten(1)

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(1, 8, 4, 4)
            self.cls = nn.Parameter(torch.randn(1, 1, 8))
            self.positions = nn.Parameter(torch.randn(1, 5, 8))
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            h = self.patches(x).flatten(2).transpose(1, 2)
            h = torch.cat([self.cls.expand(len(x), -1, -1), h], 1) + self.positions
            return self.head(self.encoder(h)[:, 0])

    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.fc = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 2)

        def forward(self, tokens):
            return self.fc(self.embed(tokens).mean(1))

    torch.manual_seed(0)
    series, tokens = torch.randn(NUM, 5, 3), torch.randint(0, 9, (NUM, 5))
    mlp = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3))
    lenet = nn.Sequential(
        *(nn.Conv2d(1, 3, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.2), nn.Conv2d(3, 4, 3)),
        *(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)),
    )
    resnet, pictures = ResNet(), torch.randn(NUM, 3, 8, 8)
    resnet(torch.randn(20, 3, 8, 8) * 2 + 1)  # running statistics that are not 0 and 1
    found = {
        "mlp": (mlp, torch.randn(NUM, 3)),
        "lenet": (lenet, torch.randn(NUM, 1, 12, 12)),
        "resnet": (resnet, pictures),
        "lstm": (Recurrent(nn.LSTM, num_layers=2, dropout=0.2, bidirectional=True, batch_first=True), series),
        "gru": (Recurrent(nn.GRU, bias=False), series),
        "rnn": (Recurrent(nn.RNN, num_layers=2), series),
        "encoder": (Encoder(), series),
        "causal": (Causal(), tokens),
        "vit": (ViT(), torch.randn(NUM, 1, 8, 8)),
        "tokens": (Tokens(), tokens),
    }
    return found | {name: (_Scaled(functions), x) for name, (functions, x) in operations().items()}


def _Scaled(functions):
    """A module with one weight, of functions of the scaled input, each output flattened and put after the others."""
    import torch

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(0.7))

        def forward(self, x):
            outputs = [function(x * self.scale) for function in functions.values()]
            return torch.cat([output.to(x.dtype).flatten(1) for output in outputs], 1)

    return Scaled()


def operations():
    """By group: functions of a batch by name, and inputs."""
    import torch
    from torch import nn

    F = nn.functional

    names = "abs ceil cos cosh erf exp expm1 floor neg relu round sigmoid sign sin sinh square tan tanh trunc"
    plain = {name: getattr(torch, name) for name in names.split()}
    activations = "celu elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus"
    plain |= {name: getattr(F, name) for name in [*activations.split(), "softsign", "tanhshrink", "softshrink"]}
    plain |= {
        "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"),
        "clamp": lambda x: x.clamp(-0.5, 0.3),
        "clamp_min": lambda x: x.clamp(min=0.1),
        "threshold": lambda x: F.threshold(x, 0.1, 20.0),
        "glu": lambda x: F.glu(x, -1),
        "rsub": lambda x: 1 - x,
        "sub": lambda x: torch.sub(x, x.exp(), alpha=0.3),
        "comparisons": lambda x: ((x > 0) & (x <= 1) | (x < -1) | (x != x)) ^ (x >= 2),
        "where": lambda x: torch.where(x > 0, x, 0.1 * x),
        "masked_fill": lambda x: x.masked_fill(x > 0.5, -2.0),
        "maximum": lambda x: torch.maximum(x, -2 * x) - torch.minimum(x, x**3),
        "remainder": lambda x: torch.remainder(x, 0.7) + torch.fmod(x, 0.7),
        "floor division": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
        "truncated division": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
        "powers": lambda x: x**2 + x**-1 + 2.0**x,
        "atan2": lambda x: torch.atan2(x, 1 + x**2),
        "to int": lambda x: (x * 10).to(torch.int32) // 3,
        "prelu": lambda x: F.prelu(x, torch.full((4,), 0.3)),
        "nan_to_num": lambda x: torch.nan_to_num(x / (x > 0)),
    }
    positive = ["acosh", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt"]
    plain |= {name: lambda x, f=getattr(torch, name): f(x.abs() + 1.1) for name in positive}
    inside = ["acos", "asin", "atan", "atanh", "asinh"]
    plain |= {name: lambda x, f=getattr(torch, name): f(0.9 * torch.tanh(x)) for name in inside}

    reductions = {
        "mean": lambda x: x.mean((1, 2), keepdim=True),
        "sum": lambda x: x.sum(-1),
        "var": lambda x: x.var(2),
        "biased var": lambda x: x.var(-1, unbiased=False),
        "std": lambda x: x.std((1, 2), correction=0, keepdim=True),
        "var_mean": lambda x: torch.var_mean(x, -1)[0],
        "amax": lambda x: x.amax(1) - x.amin((1, 2))[:, None],
        "max": lambda x: x.max(1)[0] + x.max(1)[1],
        "min": lambda x: x.min(-1, keepdim=True).values,
        "argmax": lambda x: x.argmax(-1) + x.argmin(-1),
        "softmax": lambda x: x.softmax(-1),
        "log_softmax": lambda x: F.log_softmax(x, 1),
        "logsumexp": lambda x: x.logsumexp(-1),
        "norm": lambda x: x.norm(dim=-1),
        "l1": lambda x: torch.linalg.vector_norm(x, 1, -1),
        "largest": lambda x: torch.linalg.vector_norm(x, math.inf, (1, 2))[:, None],
        "normalize": lambda x: F.normalize(x, dim=1),
        "cumsum": lambda x: x.cumsum(-1),
        "cumprod": lambda x: x.cumprod(1),
        "prod": lambda x: x.prod(-1),
        "any": lambda x: (x > 1).any(-1),
        "all": lambda x: (x > -1).all(-1),
        "topk": lambda x: x.topk(2, -1)[0] + x.topk(2, -1, largest=False)[1],
        "sort": lambda x: x.sort(1, descending=True)[0],
        "median": lambda x: x.sort(-1)[0][..., 2],
    }
    index = torch.tensor([[[0, 2], [1, 3]]])  # all different: else PyTorch has slopes of its own
    shapes = {
        "permute": lambda x: x.permute(0, 2, 1).reshape(len(x), -1),
        "transpose": lambda x: x.transpose(1, 2),
        "slice": lambda x: x[:, 1:, ::2],
        "negative slice": lambda x: x[:, -2:, :-1],
        "select": lambda x: x[:, -1],
        "cat": lambda x: torch.cat([x, x[:, :1] * 2], 1),
        "stack": lambda x: torch.stack([x, -x], 1),
        "split": lambda x: x.split(3, -1)[1] + x.chunk(2, 2)[0],
        "unbind": lambda x: x.unbind(1)[2],
        "expand": lambda x: x[:, :1].expand(-1, 3, -1) * torch.arange(3.0)[:, None],
        "repeat": lambda x: x.repeat(1, 2, 1),
        "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
        "flip": lambda x: x.flip(1),
        "roll": lambda x: x.roll(2, -1),
        "squeeze": lambda x: x[:, :1].squeeze(1).unsqueeze(-1).squeeze(-1),
        "pad": lambda x: F.pad(x, (1, 2), value=3.0),
        "negative pad": lambda x: F.pad(x, (-1, 1, 0, 1)),
        "reflect": lambda x: F.pad(x, (2, 1), mode="reflect"),
        "replicate": lambda x: F.pad(x, (2, 1), mode="replicate"),
        "gather": lambda x: x.gather(2, index.expand(len(x), -1, -1)),
        "index": lambda x: x[:, [0, 2, 1]] + x[:, :3, torch.tensor([1])],
        "index_select": lambda x: x.index_select(1, torch.tensor([2, 0])),
        "scatter": lambda x: torch.zeros(len(x), 4, 6).scatter(2, index.expand(len(x), -1, -1), x[:, :2, :2]),
        "scatter_add": lambda x: torch.zeros(len(x), 4, 6).scatter_add(2, index.expand(len(x), -1, -1), x[:, :2, :2]),
        "triangles": lambda x: x.tril() - x.triu(1),
        "diagonal": lambda x: x.diagonal(0, 1, 2),
        "set rows": lambda x: _with_row(x),
        "full": lambda x: x + torch.full_like(x, 2.0) + torch.linspace(0, 1, 6),
        "unfold": lambda x: x.unfold(2, 3, 2),
    }
    a, b = torch.randn(6, 5), torch.randn(5)
    products = {
        "matmul": lambda x: x @ a,
        "bmm": lambda x: torch.bmm(x, x.transpose(1, 2)),
        "vector": lambda x: (x @ a) @ b,
        "einsum": lambda x: torch.einsum("nij,jk->nki", x, a),
        "linear": lambda x: F.linear(x, a.T, b),
        "bilinear": lambda x: F.bilinear(x, x, torch.ones(2, 6, 6), torch.ones(2)),
        "attention": lambda x: F.scaled_dot_product_attention(x, x * 2, x + 1),
        "causal attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.3),
        "attention with bias": lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(4, 4).tril()),
        "baddbmm": lambda x: torch.baddbmm(x, x @ x.transpose(1, 2), x, beta=0.5, alpha=2.0),
        "layer_norm": lambda x: F.layer_norm(x, (4, 6), a[:4, :1] * a[0, 0] + torch.ones(4, 6)),
        "rms_norm": lambda x: F.rms_norm(x, (6,)),
        "group_norm": lambda x: F.group_norm(x, 2, torch.arange(4.0)),
        "instance_norm": lambda x: F.instance_norm(x),
        "cosine": lambda x: F.cosine_similarity(x, x.roll(1, -1), -1),
        "conv1d": lambda x: F.conv1d(x, torch.ones(3, 4, 2) * a[:3, :2, None].sum(1, keepdim=True), padding=1),
    }
    kernel, oblong, cube = torch.randn(4, 2, 3, 3), torch.randn(3, 4, 2, 3), torch.randn(2, 1, 2, 2, 2)
    windows = {
        "conv": lambda x: F.conv2d(x, oblong, torch.ones(3), (2, 1), (1, 0), 2),
        "groups": lambda x: F.conv2d(x, kernel, groups=2, padding="same"),
        "transposed": lambda x: F.conv_transpose2d(x, kernel, stride=2, padding=1, output_padding=1, groups=2),
        "conv3d": lambda x: F.conv3d(x[:, None], cube),
        "max_pool": lambda x: F.max_pool2d(x, 2),
        "overlapping max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
        "max_pool, dilated": lambda x: F.max_pool2d(x, 2, 2, dilation=2, ceil_mode=True),
        "max_pool1d": lambda x: F.max_pool1d(x[:, 0], 2),
        "max_pool3d": lambda x: F.max_pool3d(x[:, None], 2),
        "avg_pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "avg_pool, ceil": lambda x: F.avg_pool2d(x, 2, 3, 1, ceil_mode=True),
        "avg_pool, frame not counted": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        "avg_pool, divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
        "avg_pool1d": lambda x: F.avg_pool1d(x[:, 0], 2),
        "adaptive": lambda x: F.adaptive_avg_pool2d(x, (1, 3)),
        "adaptive, uneven": lambda x: F.adaptive_avg_pool2d(x, (4, 5)),
        "adaptive max": lambda x: F.adaptive_max_pool2d(x, (4, 5)),
        "nearest": lambda x: F.interpolate(x, scale_factor=2),
        "nearest, uneven": lambda x: F.interpolate(x, (4, 9)),
        "bilinear": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
        "bilinear, corners": lambda x: F.interpolate(x, (5, 9), mode="bilinear", align_corners=True),
        "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
        "reflect": lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"),
        "batch_norm": lambda x: F.batch_norm(x, torch.arange(4.0), torch.arange(1.0, 5.0)),
        "local": lambda x: nn.LocalResponseNorm(2)(x),
    }
    torch.manual_seed(1)
    rows, images = torch.randn(NUM, 4, 6), torch.randn(NUM, 4, 6, 7)
    return {
        "elementwise": (plain, rows),
        "reductions": (reductions, rows),
        "shapes": (shapes, rows),
        "products": (products, rows),
        "windows": (windows, images),
    }


def _with_row(x):
    x = x.clone()
    x[:, 1] = 7.0
    x[:, :, 2:4] *= 2.0
    return x


def answers(module, x):
    """What PyTorch makes of inputs: outputs, and the slope of a weighted sum of them in the first parameter."""
    import torch

    module.eval()
    y = module(x)
    weights = torch.cos(torch.arange(float(y[0].numel()))).reshape(y.shape[1:])
    parameter = next(module.parameters())
    (slope,) = torch.autograd.grad((y * weights).sum(), parameter)
    return y.detach().numpy(), slope.numpy()


def write(*names):
    """Store networks with their answers; all of them by default."""
    import marginax as mx
    from marginax.files import save_tree

    for name, (module, x) in networks().items():
        if names and name not in names:
            continue
        y, slope = answers(module, x)
        network = mx.nets.from_torch(module, x)
        tree = {"network": network, "x": np.asarray(x), "y": y, "slope": slope}
        save_tree(FOLDER / name, "torch", tree, overwrite=True)
        print(name, len(network.graph.nodes))


if __name__ == "__main__":
    write(*sys.argv[1:])
