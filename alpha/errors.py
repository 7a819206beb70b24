"""Alpha's exceptions: one for each kind of thing that can go wrong, each message with its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = [
    "AlphaError",
    "CaptureError",
    "CaptureWarning",
    "CheckpointError",
    "CompileError",
    "ConfigError",
    "DataError",
    "DeviceError",
    "DistributedError",
    "DryRunError",
    "DryRunWarning",
    "ExportError",
    "GradientError",
    "NonFiniteError",
    "OutOfMemoryError",
    "ServingError",
    "ShapeError",
    "TrainingError",
    "UninitializedError",
]


class AlphaError(Exception):
    """Base of every error that Alpha raises on purpose."""


class ConfigError(AlphaError, ValueError):
    """An ALPHA_* variable whose value means nothing."""


class ShapeError(AlphaError, ValueError):
    """Shapes that do not fit an operator; the message carries the operator, the fact and the shapes."""


class DeviceError(AlphaError, RuntimeError):
    """A device that is missing, that mixes with another, or that a CUDA call failed on."""


class DistributedError(AlphaError, RuntimeError):
    """Processes of one training that do not find one another, do not fit together, or have failed."""


class CompileError(AlphaError, RuntimeError):
    """A kernel that does not compile: the command, the options and the compiler's text."""


class OutOfMemoryError(AlphaError, MemoryError):
    """The arena cannot serve an allocation: asked, in use, reserved, limit, free on the device.

    Raised in a step of training, its text also shows what the step holds, and what helps at which price. That is
    computed when the text is first read, so a program that catches the error and goes on does not wait for it.
    """

    _explain: Callable[[], str] | None = None
    _more = ""

    def explain_by(self, explain: Callable[[], str]) -> None:
        """Let `explain` tell more when the text is read; who is called last, and so knows the whole step, tells it."""
        self._explain, self._more = explain, ""

    def __str__(self) -> str:
        explain, self._explain = self._explain, None  # an error in it leads to this text again
        if explain is not None:
            try:
                self._more = explain()
            except Exception as error:
                self._more = f"alpha.memory_plan cannot tell more: {type(error).__name__}: {error}"
        return f"{super().__str__()}\n\n{self._more}" if self._more else super().__str__()


class DataError(AlphaError, ValueError):
    """A data file that is missing, truncated or altered; the message names it."""


class CheckpointError(AlphaError, ValueError):
    """A file of a run (weights, history, curves) that cannot be read or written or does not fit."""


class GradientError(AlphaError, RuntimeError):
    """A backward pass that cannot be right: no graph, freed buffers, a saved tensor written in place."""


class NonFiniteError(AlphaError, RuntimeError, ArithmeticError):
    """Gradients whose norm is NaN or infinite."""


class UninitializedError(AlphaError, RuntimeError, ValueError):
    """A parameter of a lazy layer that is asked for its shape or values before the first forward."""


class ServingError(AlphaError, RuntimeError):
    """A request that is not taken: the queue of a `Predictor` is full, or it is closed."""


class CaptureError(AlphaError, RuntimeError):
    """A step that cannot be captured in a CUDA graph; the message names what it does and the line."""


class CaptureWarning(UserWarning):
    """A step that is not captured in a CUDA graph and runs as usual; the message says why."""


class DryRunError(AlphaError, RuntimeError):
    """A step whose launches cannot be known without computing; the message says why."""


class DryRunWarning(UserWarning):
    """A step whose kernels are compiled one by one, when they are first used; the message says why."""


class ExportError(AlphaError, ValueError):
    """A model that cannot become a file of another format, or a file that no module can be made of; it says why."""


class TrainingError(AlphaError, ArithmeticError):
    """A training run that cannot go on: a loss that is not finite."""


def type_name(value: object) -> str:
    """The type of a value, for a message that a Tensor is needed: another library's is a "torch.Tensor"."""
    name, library = type(value).__name__, type(value).__module__.partition(".")[0]
    return f"{library}.{name}" if name in ("Tensor", "Parameter", "Buffer") and library != "alpha" else name


def first_few(values: Iterable[object], most: int) -> str:
    """The first of several values, for a message, and how many more there are: "a, b and 3 more"."""
    texts = [*map(str, values)]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
