"""All that needs PyTorch, in an environment that has it, and laplace-torch besides."""

import fcntl
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.peer

ROOT = Path(__file__).resolve().parents[3]


def test_everything_that_needs_pytorch_passes_beside_it(tmp_path_factory):
    """The peer's interpreter has PyTorch; all else comes from the packages of this one."""
    from benchmarks.harness.entry import LAPLACE
    from benchmarks.harness.environments import python_of

    with (tmp_path_factory.getbasetemp().parent / "laplace.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = python_of(LAPLACE)
    paths = [str(ROOT / "src"), str(ROOT), sysconfig.get_paths()["purelib"]]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    tests = ["tests/nets/torch/test_with_torch.py", "tests/test_docs.py::test_python_blocks_run[docs/pytorch.md]"]
    command = [python, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "-W", "ignore", *tests]
    finished = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout[-5000:]
    assert "skipped" not in finished.stdout.splitlines()[-1], finished.stdout[-2000:]
