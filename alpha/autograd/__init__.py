"""Define-by-run gradients: `alpha.autograd.Function`, `backward` and `grad`."""

from typing import TYPE_CHECKING, Any

from alpha.core.names.missing_names import MissingName

__all__ = ["Function", "Variable", "backward", "grad"]

if TYPE_CHECKING:
    from alpha.autograd.function import Function as Function
    from alpha.autograd.gradients import backward as backward
    from alpha.autograd.gradients import grad as grad
    from alpha.core.names.no_effect import Variable as Variable
else:

    def __getattr__(name: str) -> Any:
        if name == "Variable":
            from alpha.core.names import no_effect as room
        elif name in ("backward", "grad"):
            from alpha.autograd import gradients as room
        elif name == "Function":
            from alpha.autograd import function as room
        else:
            raise MissingName(__name__, name)
        return getattr(room, name)

    def __dir__() -> list[str]:
        return __all__
