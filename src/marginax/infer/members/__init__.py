"""Ensembles in one network: members that share weights, or are small."""
