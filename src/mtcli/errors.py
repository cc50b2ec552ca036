"""The failures a user can meet. Each is one line (what, where, what to do) and has its exit code.

Nothing below the command line exits or prints an error: it raises one of these, and `cli/` turns it into a
line on stderr and the process's exit code. The codes are part of the command-line contract.
"""


class MtcliError(Exception):
    """A failure that is the user's to know about; the message names what, where and the remedy."""

    exit_code = 1


class UsageError(MtcliError):
    """A wrong option or configuration."""

    exit_code = 2


class DataError(MtcliError):
    """Text that cannot be used as it is: the message names file, line and byte where there is one."""

    exit_code = 3


class ModelError(MtcliError):
    """A model, tokenizer or checkpoint that is missing, damaged or of another shape."""

    exit_code = 4


class StorageError(MtcliError):
    """A full or read-only disk, or too little memory."""

    exit_code = 5


class DivergedError(MtcliError):
    """The loss or a gradient is no longer a finite number."""

    exit_code = 6


class LockedError(MtcliError):
    """Another process is training in this run folder."""

    exit_code = 7


class RankError(MtcliError):
    """Another rank of a distributed run ended, hung or did not start."""

    exit_code = 8


class StoppedError(MtcliError):
    """Stopped by a signal; `exit_code` is 128 plus the signal's number."""

    def __init__(self, message: str, signal_number: int):
        super().__init__(message)
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number


class InterruptedTrainingError(StoppedError):
    """Training stopped by a signal, after saving."""
