"""Ours against named peers, on the same work, in one run: `make bench NAME=mlp_step`."""
