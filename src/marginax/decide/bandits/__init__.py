"""Contextual bandits: which arm to pull, when only the reward of the arm that was pulled is ever seen."""

from marginax.decide.bandits.agent import AbstractAgent, AbstractSequential, Uniform
from marginax.decide.bandits.linear import LinearThompson, LinearUCB, Regressions
from marginax.decide.bandits.network import Greedy, Thompson
from marginax.decide.bandits.neural_linear import NeuralLinear
from marginax.decide.bandits.playing import Played, play, resume_play
from marginax.decide.bandits.replay import ReplayBandit
from marginax.decide.bandits.rewards import AbstractRewards, GaussianRewards, RewardTable

__all__ = [
    "AbstractAgent",
    "AbstractRewards",
    "AbstractSequential",
    "GaussianRewards",
    "Greedy",
    "LinearThompson",
    "LinearUCB",
    "NeuralLinear",
    "Played",
    "Regressions",
    "ReplayBandit",
    "RewardTable",
    "Thompson",
    "Uniform",
    "play",
    "resume_play",
]
