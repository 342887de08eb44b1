"""What to change, in the words of the place where it is read: arguments in Python, options on the command line."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Remedies:
    """How settings are called.

    Attributes:
        chain_argument: before a number of chains.
        setting_argument: before a setting of the method.
        method_argument: before the name of a method.
        start: how to begin elsewhere.
    """

    chain_argument: str
    setting_argument: str
    method_argument: str
    start: str

    def chains(self, num: int) -> str:
        """So many chains.

        >>> PYTHON.chains(20), COMMAND_LINE.chains(20)
        ('num_chains=20', '--chains 20')
        """
        return f"{self.chain_argument}{num}"

    def setting(self, name: str, value: object) -> str:
        """A setting of the method.

        >>> PYTHON.setting("num_samples", 2000), COMMAND_LINE.setting("num_samples", 2000)
        ('num_samples=2000', '--option num_samples=2000')
        """
        return f"{self.setting_argument}{name}={value}"

    def methods(self, *names: str) -> str:
        """Other methods.

        >>> COMMAND_LINE.methods("CyclicalSGMCMC", "ParallelTempering")
        '--method CyclicalSGMCMC or ParallelTempering'
        """
        return f"{self.method_argument}{' or '.join(names)}"


PYTHON = Remedies("num_chains=", "", "", "init=")
"""Of `mx.fit` and the estimators, whose methods are objects such as `mx.infer.NUTS(num_samples=2000)`."""

COMMAND_LINE = Remedies("--chains ", "--option ", "--method ", "--seed")
"""Of `marginax fit`."""
