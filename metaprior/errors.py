"""The errors that this package raises by name; everything else is a plain ValueError or TypeError."""


class NotFittedError(ValueError, AttributeError):
    """A method was used before ``fit`` (or ``load``)."""


class TrainingDiverged(FloatingPointError):
    """Training or adaptation left the finite numbers; the message says where, and what to try."""


class NotFinite(ValueError):
    """Data or outputs hold NaN or infinite values where they must not."""


class CheckpointError(ValueError):
    """A checkpoint cannot be read: it is missing, damaged, foreign or of another kind."""


class ScratchError(OSError):
    """The scratch file of a meta-gradient cannot be made, written or read: a full, read-only or vanished disk."""
