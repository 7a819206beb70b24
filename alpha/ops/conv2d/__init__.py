"""The 2-D convolution operators on NHWC arrays, by the C-K-S algorithms; their functions are in ops/convolution.

Three operators (paper, equations 1-3), each with its kernel configurations in `table.py`:

    conv2d_forward           ConvV2       Y  = X * W
    conv2d_backward_input    KS-deconv    dX = deconv(dY, W)
    conv2d_backward_weight   Sk-dilated   dW = dilated_conv(X, dY)

On bfloat16 operands the first two give bfloat16, the last float32 or bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha.autograd.function import check_guards
from alpha.autograd.memory_mode import FAST, LEAST
from alpha.autograd.memory_mode import setting as memory
from alpha.core.numerics import BFLOAT16, FLOAT32, get_precision
from alpha.core.primitive import Array, on_every_device
from alpha.core.tensor import Tensor
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.launch import needs_half_alone, needs_half_of_gradient, prepare
from alpha.ops.conv2d.magnitudes import Magnitudes, drop_half, finds_magnitude, needs_magnitude
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.plan import cuda_target as cuda_target
from alpha.ops.conv2d.problem import (
    FORWARD,
    INPUT,
    PACK,
    PLAIN,
    WEIGHT,
    WITH_MAGNITUDE,
    WITH_STATISTICS,
    Epilogue,
    Given,
    Target,
)
from alpha.ops.conv2d.select.choose import choose
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.conv2d.step_form import StepForm
from alpha.ops.kernel.casts import HalfAlone, as_dtype, as_float32, cast_operands
from alpha.ops.kernel.rectifier import Rectifier, RectifierFunction, RectifierStep
from alpha.ops.kernel.sums import sum_axis1
from alpha.runtime import recording


@on_every_device
def conv2d_forward(
    X: Array,
    W: Array,
    s: ConvShape,
    precision: str = "float32",
    b: Array | None = None,
    slope: float = 1.0,
    statistics: ChannelStatistics | None = None,
) -> Array:
    """Y = f(X * W + b), f a rectifier of `slope` (1: none); fills `statistics` of Y if the kernel computes them

    X (N, IH, IW, IC), W (OC, FH, FW, IC), b (OC,) or None -> Y (N, OH, OW, OC)
    """
    if isinstance(X, np.ndarray):
        return _on_cpu(FORWARD, X, W, s, precision, b, slope)
    also = WITH_STATISTICS
    if statistics is None:
        also = WITH_MAGNITUDE if finds_magnitude(X, slope) else PLAIN
    plan, operands = prepare(FORWARD, (X, W), s, precision, b, slope, also)
    found = plan.launch(X.device, operands)
    if statistics is not None:
        statistics.take(found)
    Y = found["Y"]
    Y.magnitude = found.get("magnitude")
    return Y


@on_every_device
def conv2d_backward_input(
    dY: Array,
    W: Array,
    s: ConvShape,
    precision: str = "float32",
    b: Array | None = None,
    slope: float = 1.0,
    step: RectifierStep | None = None,
) -> Array:
    """dX = deconv(dY, W); as a transposed convolution f(deconv(dY, W) + b), f as above

    dY (N, OH, OW, OC), W (OC, FH, FW, IC), b (IC,) or None -> dX (N, IH, IW, IC)

    Args:
        step: the first step of the gradient behind. If the kernel takes it, `step.taken` is true then, and the result
            is dZ.
    """
    if isinstance(dY, np.ndarray):
        return _on_cpu(INPUT, dY, W, s, precision, b, slope)
    if step is None or not step.fits(dY):
        plan, operands = prepare(INPUT, (dY, W), s, precision, b, slope)
        return plan.launch(dY.device, operands)["dX"]
    also = Epilogue(step=StepForm.of(step, needs_magnitude(dY)))
    plan, operands = prepare(INPUT, (dY, W), s, precision, b, slope, also)
    if not plan.facts.get("takes step"):
        return plan.launch(dY.device, operands)["dX"]
    found = plan.launch(dY.device, {**operands, **step.operands})
    step.note_taken(found.get("part"))
    dZ = found["dX"]
    dZ.magnitude = found.get("magnitude")
    return dZ


@on_every_device
def conv2d_backward_weight(
    X: Array, dY: Array, s: ConvShape, precision: str = "float32", dtype: np.dtype[Any] | None = None
) -> Array:
    """dW = dilated_conv(X, dY), of bfloat16 operands in float32 unless `dtype` is bfloat16

    X (N, IH, IW, IC), dY (N, OH, OW, OC) -> dW (OC, FH, FW, IC)
    """
    in_bfloat16 = X.dtype == BFLOAT16 == dtype
    if isinstance(X, np.ndarray):
        dW = _on_cpu(WEIGHT, X, dY, s, precision)
        return as_dtype(dW, BFLOAT16) if in_bfloat16 else dW
    plan, operands = prepare(WEIGHT, (X, dY), s, precision, gradient=BFLOAT16 if in_bfloat16 else FLOAT32)
    return plan.launch(X.device, operands)["dW"]


CPU = Target("cpu")


def _on_cpu(
    operator: str, first: Array, second: Array, s: ConvShape, precision: str, b: Array | None = None, slope: float = 1.0
) -> Array:
    """The result by numpy; a profile times it."""
    profile = recording.state.profile
    if profile is None:
        return _computed(operator, first, second, s, precision, b, slope)
    return profile.timed(operator, _computed, operator, first, second, s, precision, b, slope)


def _computed(
    operator: str, first: Array, second: Array, s: ConvShape, precision: str, b: Array | None, slope: float
) -> Array:
    """The result by numpy; bfloat16 arrays are converted to float32 and back."""
    row = choose(operator, s, CPU, precision)
    if first.dtype != BFLOAT16:
        return compute(row, first, second, s, b, slope)
    result = compute(row, as_float32(first), as_float32(second), s, b, slope)
    return result if operator == WEIGHT else as_dtype(result, BFLOAT16)


def _bias_gradient(dY: Array) -> Array:
    """db = sum over images and pixels, float32 if dY is bfloat16   dY (N, H, W, C) -> db (C,)"""
    C = dY.shape[-1]
    return sum_axis1(dY.reshape(1, -1, C)).reshape(C)


CHEAP = 4  # an output of at least so many times the bytes of X is made again, not kept, if X needs no gradient


class Convolution(RectifierFunction):
    """Y = f(product(X, W) + b), f a rectifier of `negative_slope` (1: none), and the gradients of X, W and b.

    In the memory mode "least" nobody keeps Y if it is at least `CHEAP` times as large as X and X needs no gradient, as
    behind an image: the backward pass computes it again.

    If there is an fp16 copy of X, and the gradient of W will read that, X itself is not kept.
    """

    offers_first_step = False
    has_statistics = False  # whether the kernel also computes the channel statistics of Y
    can_read_half = False  # whether there are kernels that read fp16 copies of X and of the gradient of Y
    # whether one beside the gradient is of use; with one tap it saves less than preparing the filter takes
    reads_half = False
    # whether a copy of the result of a batch normalisation of Y is of use: mostly a dense convolution reads it
    next_reads_half = False
    rectified_by: Rectifier | None = None
    _magnitude: Array | None = None  # that of X, if the forward pass has found it, in a mode other than "fast"
    half: HalfAlone | None  # in place of X
    product: Callable[..., Array]
    backward_x: Callable[..., Array]
    backward_weight: Callable[..., Array]

    def forward(
        self,
        X: Array,
        W: Array,
        b: Array | None,
        *,
        shape: ConvShape,
        negative_slope: float,
        statistics: ChannelStatistics | None = None,
        magnitude: Array | None = None,
    ) -> Array:
        X, W = self.begin(X, W, b, shape, negative_slope, magnitude)
        wanted = {} if statistics is None else {"statistics": statistics}
        self.has_statistics = statistics is not None
        with self.magnitudes:
            Y = self.product(X, W, shape, self.precision, b, negative_slope, **wanted)
        self.keep(X, W, Y)
        return Y

    def begin(
        self, X: Array, W: Array, b: Array | None, shape: ConvShape, negative_slope: float, magnitude: Array | None
    ) -> tuple[Array, Array]:
        """Note what the gradient needs to know, and return X and W in the type in which they are multiplied."""
        self.s = shape
        if negative_slope != 1:
            self.rectified_by, self.offers_first_step = Rectifier(negative_slope), True
        self.precision = get_precision()
        if self.precision == "tf32" and isinstance(shape, ConvShape):  # kernels of other axes read no copies
            self.next_reads_half = True
            self.can_read_half = shape.groups == 1 and shape.IC % PACK == 0
            self.reads_half = self.can_read_half and shape.taps > 1
        self.dtypes: list[Any] = [None if array is None else array.dtype for array in (X, W, b)]
        X, W = cast_operands(self.name.lower(), self.precision, X, W)
        self.magnitudes = Magnitudes(W, limits=self.precision == "tf32")
        self.magnitudes.note(X, magnitude)
        return X, W

    def keep(self, X: Array, W: Array, Y: Array) -> None:
        """Keep what the gradients need of these arrays."""
        self.keeps_own_output = self.rectified_by is not None
        self.save(X, W, Y) if self.keeps_own_output else self.save(X, W)
        if self.can_read_half and memory.name == FAST:
            self._keep_half_alone()

    def _keep_half_alone(self) -> None:
        """Keep the fp16 copy of X in place of X, if the gradient of W will read that."""
        X, *others = self._saved or ()
        magnitude = self.magnitudes.known(X)
        if magnitude is None or magnitude.half is None or not self.needs_input_grad[1] or not self._reads_half_again(X):
            return
        self.half = HalfAlone(X, magnitude)
        self.magnitudes.note(self.half, self.half.magnitude)
        self.save(None, *others)

    def _reads_half_again(self, X: Array) -> bool:
        """True if the gradient of W will read an fp16 copy of X."""
        return False

    def half_of_gradient(self) -> Given:
        """The fp16 copy of the gradient of Y that is of use, where it can be read: none, or beside it, or in its place.

        A copy can be in its place if the function that asks gives the whole gradient, and the program does not see it.
        """
        is_shared = self.recorded_uses != 1 or self.hooks or self.gradient_is_seen
        reads_floats = self.needs_input_grad[2] or self.rectified_by is not None
        if self._saved and not (is_shared or reads_floats) and self._reads_half_of_gradient(*self._saved[:2]):
            return Given.HALF_ALONE
        return Given.HALF if self.reads_half else Given.MAGNITUDE

    def _reads_half_of_gradient(self, X: Array | None, W: Array) -> bool:
        """True if the gradients of X and W read a copy of the gradient of Y alone, and save time by it."""
        return False

    def _save_once(self, inputs: Sequence[Tensor | None], Y: Array) -> None:
        source = None if inputs[0] is None else inputs[0]._node
        stays = source is None or source.output_is_kept or source.keeps_own_output
        if self.can_read_half and memory.name != FAST and not stays:
            self._keep_half_alone()
        X, W, *rest = self._saved or ()
        if X is None:
            super()._save_once(inputs, Y)
            return
        drop_half(X)
        self._magnitude = self.magnitudes.known(X)
        super()._save_once(inputs, Y)
        if memory.name != LEAST or self.needs_input_grad[0] or self._again or Y.nbytes < CHEAP * X.nbytes:
            return
        bias = inputs[2]
        if bias is not None:
            self.guard(bias)
        b = None if bias is None else bias.array
        slope = 1.0 if self.rectified_by is None else self.rectified_by.slope
        guards = self._guards  # the list, to which the guards of X and W are yet to be added
        name, shape, precision = self.name, self.s, self.precision
        product, magnitudes, has_statistics = self.product, self.magnitudes, self.has_statistics

        def output() -> Array:  # by the kernel of the forward pass; it does not hold this node, which may hold it
            check_guards(name, guards)
            wanted = {"statistics": ChannelStatistics()} if has_statistics else {}
            with magnitudes.copy():
                return product(X, W, shape, precision, b, slope, **wanted)

        self._maker = output
        if rest:
            self._saved, self._again, self.keeps_own_output = (X, W, None), {2: self.made_again(output)}, False

    def free(self) -> None:
        super().free()
        vars(self).pop("magnitudes", None)  # with the copies; in the first run of a checkpoint they are gone before
        self._magnitude = None

    def backward(self, dY: Array) -> Any:
        X, W = self.saved[:2]
        X = X if self.half is None else self.half
        if self.rectified_by is not None and self.begun is None:
            dY = self.rectified_by.gradient(dY, self.saved[2])
        magnitudes = self.magnitudes.copy()  # the caller may write into dY before a second backward pass
        magnitudes.note(dY, getattr(dY, "magnitude", None))
        if self._magnitude is not None:
            magnitudes.note(X, self._magnitude)  # X is another array than in the forward pass if it was made again
        noted = recording.state.recording
        with magnitudes:
            if noted is not None and self._gains_by_branches():
                return self._on_two_branches(noted, X, W, dY)
            dX = self._gradient(0, self.backward_x, dY, W, **self._step(dY))
            return (dX, *self._weight_gradients(X, dY))

    def _gains_by_branches(self) -> bool:
        """True if gradients of weights may run beside that of X. This takes memory, so the mode "least" does not."""
        of_x, *of_weights = self.needs_input_grad
        return of_x and any(of_weights) and memory.name != LEAST

    def _on_two_branches(self, noted: recording.Recording, X: Array, W: Array, dY: Array) -> Any:
        """The gradients. Those of W and b may run beside that of X. In tf32 they begin behind it, which is faster."""
        late = self.precision == "tf32"
        beside = None if late else noted.fork()
        dX = self._gradient(0, self.backward_x, dY, W, **self._step(dY))
        if late:
            beside = noted.fork()
        if beside is None:
            return (dX, *self._weight_gradients(X, dY))
        return (dX, *beside(lambda: self._weight_gradients(X, dY)))

    def _weight_gradients(self, X: Array, dY: Array) -> tuple[Array | None, Array | None]:
        """Gradients of W and b, which nothing waits for before the step of an optimizer."""
        dW = self._gradient(1, self.backward_weight, X, dY, dtype=self.dtypes[1])
        return dW, as_dtype(_bias_gradient(dY), self.dtypes[2]) if self.needs_input_grad[2] else None

    def _gradient(self, index: int, rule: Callable[..., Array], *operands: Array, **options: Any) -> Array | None:
        """The gradient of input `index` in the input's dtype, or None if it is not needed."""
        if not self.needs_input_grad[index]:
            return None
        return as_dtype(rule(*operands, self.s, self.precision, **options), self.dtypes[index])

    def _step(self, dY: Array) -> dict[str, RectifierStep]:
        """The argument for the first step of the gradient behind, if dX has the dtype in which it is asked for."""
        if isinstance(self.behind, RectifierStep) and self.dtypes[0] == dY.dtype:
            return {"step": self.behind}
        return {}


class Conv2d(Convolution):
    """Y = f(X * W + b)   X (N, IH, IW, IC), W (OC, FH, FW, IC), b (OC,) -> Y (N, OH, OW, OC)"""

    takes_first_steps = True
    product = staticmethod(conv2d_forward)
    backward_x = staticmethod(conv2d_backward_input)
    backward_weight = staticmethod(conv2d_backward_weight)

    def _reads_half_again(self, X: Array) -> bool:
        of_dY = self.reads_half and self.has_statistics  # which a batch normalisation behind will write
        return needs_half_alone(self.s, X.device, self.precision, of_dY)

    def _reads_half_of_gradient(self, X: Array | None, W: Array) -> bool:
        if isinstance(W, np.ndarray):
            return False
        of_X = Given.HALF_ALONE
        if self.half is None:
            of_X = Given.MAGNITUDE if X is None else self.magnitudes.knows(X, W)[0]
        dX, dW, _ = self.needs_input_grad
        return needs_half_of_gradient(self.s, W.device, self.precision, of_X, (dX, dW))


class ConvTranspose2d(Convolution):
    """The adjoint of Conv2d in X   X (N, OH, OW, OC), W (OC, FH, FW, IC), b (IC,) -> Y (N, IH, IW, IC)

    The shape is that of the convolution that it is the adjoint of: its output is our input.
    """

    product = staticmethod(conv2d_backward_input)
    backward_x = staticmethod(conv2d_forward)

    @staticmethod
    def backward_weight(X: Array, dY: Array, s: ConvShape, precision: str, dtype: np.dtype[Any]) -> Array:
        return conv2d_backward_weight(dY, X, s, precision, dtype)
