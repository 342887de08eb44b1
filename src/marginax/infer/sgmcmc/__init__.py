"""Diffusions driven by gradients of minibatches."""
