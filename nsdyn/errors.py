"""The errors a user can meet. Each message names the argument, what was found, what was expected and the way out."""


class NsdynError(Exception):
    """Base of all errors raised by nsdyn."""


class ProblemError(NsdynError, ValueError):
    """A problem, an argument or a setting that cannot be simulated as it stands."""


class SimulationError(NsdynError, RuntimeError):
    """A run that stopped early. `status`, `t` and `mode` say why, when and where; `partial` holds the rows until then."""

    def __init__(self, message, *, status=None, t=None, mode=None, partial=None):
        super().__init__(message)
        self.status = status
        self.t = t
        self.mode = mode
        self.partial = partial


class FileError(NsdynError, ValueError):
    """A file that is not what it is said to be."""


class SingularTransitionWarning(UserWarning):
    """Constraints whose rank drops where they switch: the equations of the switch do not say what happens."""


class RedundancyWarning(UserWarning):
    """Dependent but consistent constraint rows: the motion is unique, the multipliers are not."""
