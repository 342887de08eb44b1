"""Noise inside the network: dropout and its relatives."""
