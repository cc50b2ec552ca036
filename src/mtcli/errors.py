"""The errors that a user can see. Each has one line of text (what, where, what to do) and an exit code.

Code below the command line never exits and never prints an error. It raises one of these, and `cli/` turns it into a
line on stderr and the exit code of the process. The codes are part of the command-line interface.
"""

import signal


class MtcliError(Exception):
    """An error shown to the user. The message says what is wrong, where, and what to do."""

    exit_code = 1


class UsageError(MtcliError):
    """A wrong option or configuration."""

    exit_code = 2


class DataError(MtcliError):
    """Text that cannot be used as it is. The message names the file, and the line and byte if there is one."""

    exit_code = 3


class ModelError(MtcliError):
    """A model, tokenizer or checkpoint that is missing, damaged or has another shape."""

    exit_code = 4


class NotFiniteError(ModelError):
    """A model whose scores are NaN or infinite. Its weights are finite, but too large to compute with."""

    def __init__(self) -> None:
        super().__init__(
            "the model's scores are not finite numbers (NaN or infinity): its weights are damaged or too large; "
            "use another model or checkpoint"
        )


class StorageError(MtcliError):
    """A full or read-only disk, or too little memory."""

    exit_code = 5


class DivergedError(MtcliError):
    """The loss or a gradient is no longer a finite number."""

    exit_code = 6


class LockedError(MtcliError):
    """Another process works in the folder."""

    exit_code = 7


class RankError(MtcliError):
    """Another rank of a distributed run ended, hangs or did not start."""

    exit_code = 8


class StageError(MtcliError):
    """A command that failed as one stage of another; `exit_code` is that of the command."""

    def __init__(self, stage: str, code: int):
        """Describe it.

        Args:
            stage: The name of the stage. The log shows its command, and below it what the command reported.
            code: The exit code of the command; negative: the number of the signal that ended it.
        """
        super().__init__(
            f"the stage {stage!r} {_end_of_command(code)}; correct this, then run the same command again to continue "
            "with this stage"
        )
        self.exit_code = 128 - code if code < 0 else code


def _end_of_command(code: int) -> str:
    """Return how a command failed, by its exit code; negative: the number of the signal that ended it."""
    if code >= 0:
        return f"failed (exit code {code}): the log above shows its command and the reason"
    if code == -signal.SIGKILL:
        return "was ended by SIGKILL, often because the memory was full; the log above shows its command"
    return f"was ended by signal {-code}; the log above shows its command"


class StoppedError(MtcliError):
    """The command was stopped by a signal; `exit_code` is 128 plus the number of the signal."""

    def __init__(self, message: str, signal_number: int):
        super().__init__(message)
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number


class InterruptedTrainingError(StoppedError):
    """Training was stopped by a signal, after saving a checkpoint."""
