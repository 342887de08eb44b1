"""The same fit on many machines: chains as tasks of a Dask cluster, or hosts in lockstep.

>>> import tempfile
>>> import numpy as np
>>> import marginax as mx
>>> x = np.linspace(-1, 1, 20)[:, None]
>>> model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.1))
>>> with tempfile.TemporaryDirectory() as folder:  # on storage that all machines see
...     here = mx.launch.Serial()  # the tasks of a cluster, one after another in this process
...     posterior = mx.fit(model, (x, 3 * x[:, 0]), "map", key=0, num_chains=2, directory=folder, launcher=here)
>>> posterior.num_chains
2
"""

from marginax.infer.launching import AbstractLauncher, Serial
from marginax.launch.elastic import Dask
from marginax.launch.hosts import Hosts, initialize

__all__ = ["AbstractLauncher", "Dask", "Hosts", "Serial", "initialize"]
