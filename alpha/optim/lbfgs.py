"""L-BFGS: quasi-Newton steps of all parameters together, with a line search that evaluates the model anew.

A step of the line search lowers the loss and flattens its slope (strong Wolfe conditions).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.autograd.grad_mode import enable_grad, no_grad
from alpha.core.tensor import Tensor, tensor
from alpha.errors import CheckpointError, type_name
from alpha.ops.array.joining import cat
from alpha.optim.hyper import Rule, natural, number, positive_whole, whole
from alpha.optim.optimizer import Group, Optimizer, Parameters
from alpha.runtime.recording import refuse

__all__ = ["LBFGS"]


DECREASE = 1e-4  # the share of the slope at 0 by which the loss must fall
FLATTER = 0.9  # the share of the slope at 0 that may be left
NARROWEST = 1e-9  # of a bracket, in what the parameters move
MOST = 25  # evaluations after the first one


class Point(NamedTuple):
    """A point x + t d: its loss, its gradient (N,), and the slope along d."""

    t: float
    loss: float
    gradient: Tensor
    slope: float


def strong_wolfe(evaluate: Callable[[float], Point], start: Point, t: float, reach: float) -> tuple[Point, int]:
    """Search from `t` on, as minFunc does (Schmidt 2005): bracket a good point, then narrow the bracket.

    Args:
        evaluate: computes a point.
        start: the point of t = 0, whose slope is negative.
        reach: the largest magnitude in d.

    Returns:
        The point that was found, and how many were evaluated.
    """

    def is_too_high(point: Point) -> bool:
        return point.loss > start.loss + DECREASE * point.t * start.slope

    def is_flat(point: Point) -> bool:
        return abs(point.slope) <= -FLATTER * start.slope

    before, point, tried = start, evaluate(t), 0
    while tried < MOST:
        if is_too_high(point) or (tried > 1 and point.loss >= before.loss):
            break
        if is_flat(point):
            return point, tried + 1
        if point.slope >= 0:
            break
        t = lowest(before, point, point.t + 0.01 * (point.t - before.t), point.t * 10)
        before, point, tried = point, evaluate(t), tried + 1
    ends = [before if tried < MOST else start, point]
    low = _lower(ends)
    is_close = False  # whether the last point was near an end, so that the bracket has hardly become narrower
    while tried < MOST and abs(ends[1].t - ends[0].t) * reach >= NARROWEST:
        left, right = sorted(end.t for end in ends)
        t, margin, was_close = lowest(ends[0], ends[1], left, right), 0.1 * (right - left), is_close
        is_close = min(right - t, t - left) < margin
        if is_close and (was_close or not left < t < right):
            t, is_close = right - margin if abs(t - right) < abs(t - left) else left + margin, False
        point, tried = evaluate(t), tried + 1
        if is_too_high(point) or point.loss >= ends[low].loss:
            ends[1 - low] = point
            low = _lower(ends)
            continue
        if is_flat(point):
            return point, tried + 1
        if point.slope * (ends[1 - low].t - ends[low].t) >= 0:
            ends[1 - low] = ends[low]
        ends[low] = point
    return ends[low], tried + 1


def _lower(ends: list[Point]) -> int:
    return 0 if ends[0].loss <= ends[1].loss else 1


def lowest(a: Point, b: Point, least: float, most: float) -> float:
    """The t in [least, most] at which the cubic through two points with their slopes is lowest; else the middle."""
    a, b = (a, b) if a.t <= b.t else (b, a)
    middle = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = middle * middle - a.slope * b.slope
    if not square >= 0:
        return (least + most) / 2
    root = math.sqrt(square)
    width = b.slope - a.slope + 2 * root
    if width == 0:
        return (least + most) / 2
    t = b.t - (b.t - a.t) * ((b.slope + root - middle) / width)
    return min(max(t, least), most)


LISTS = ("old_dirs", "old_stps")  # what the state has as lists of vectors
VECTORS = ("d", "prev_flat_grad")
NUMBERS = ("func_evals", "n_iter", "t", "prev_loss", "ro", "H_diag")
LEAST_CURVATURE = 1e-10  # of a step that is remembered


def search_name(value: Any) -> str | None:
    """None or "strong_wolfe"."""
    if not isinstance(value, (str, type(None))) or value not in (None, "strong_wolfe"):
        raise ValueError("is not None or 'strong_wolfe'")
    return value


class LBFGS(Optimizer):
    """Limited-memory BFGS (Nocedal 1980; Liu & Nocedal 1989), with PyTorch's arguments in PyTorch's order.

    `step(closure)` makes up to `max_iter` steps W += t d, in which d is minus the gradient multiplied by an estimate of
    the inverse Hessian, made of the last `history_size` steps and changes of the gradient.

    It is no elementwise kernel as other optimizers are: a direction takes sums over all parameters, two for each step
    that is remembered, and what comes next depends on losses and gradients, which are read on the host. So it is
    written with the operators of tensors, and a step with it cannot be captured: `alpha.capture` runs such a step as
    usual and says so, or raises `CaptureError` if it is strict. A `Trainer` has no closure, so it cannot use it.

    Args:
        params: of one device and one dtype, in one group.
        lr: the length t of a step, or, with a line search, the first one that is tried. In the very first step it is
            multiplied by min(1, 1 / sum of |gradient|).
        max_iter: steps of a call.
        max_eval: evaluations of the closure, after which a call ends; by default max_iter * 5 // 4.
        tolerance_grad: a call ends where no gradient is larger.
        tolerance_change: a call ends where no parameter or the loss has changed more.
        history_size: number of steps that are remembered, at least 1; each takes twice the memory of the parameters.
        line_search_fn: None, or "strong_wolfe" for a search of the length along each direction.

    Raises:
        ValueError: there is more than one group.
        TypeError: `step` has no closure.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "lr": natural,
        "max_iter": whole,
        "max_eval": whole,
        "tolerance_grad": number,
        "tolerance_change": number,
        "history_size": positive_whole,
        "line_search_fn": search_name,
    }
    counts: ClassVar[Mapping[str, Rule]] = {}
    per_parameter: ClassVar[bool] = False
    in_pytorch: ClassVar[Mapping[str, str] | None] = {name: name for name in (*NUMBERS, *VECTORS, *LISTS)}
    numbers_in_pytorch: ClassVar[frozenset[str]] = frozenset(NUMBERS)
    follows_in_pytorch: ClassVar[frozenset[str]] = frozenset({"al"})

    def __init__(
        self,
        params: Parameters,
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if max_eval is None and isinstance(max_iter, (int, np.integer)):
            max_eval = int(max_iter) * 5 // 4
        limits = {"max_iter": max_iter, "max_eval": max_eval, "history_size": history_size}
        tolerances = {"tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change}
        super().__init__(params, {"lr": lr, **limits, **tolerances, "line_search_fn": line_search_fn})

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        if self.param_groups:
            raise ValueError("LBFGS: all parameters are in one group; give a list of them, not of several groups")
        super().add_param_group(group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make up to `max_iter` steps.

        Args:
            closure: drops the gradients, computes the loss and its gradients anew, and returns the loss.

        Returns:
            The loss before the first of them.

        Raises:
            Whatever the closure raises; the parameters and the state are then as before.
        """
        if closure is None:
            raise TypeError("LBFGS: step needs a closure, which computes the loss and its gradients anew; give step(f)")
        refuse("LBFGS: it chooses its steps by losses and gradients that it reads on the host")
        self._check(self.param_groups[0])

        def evaluate() -> Any:
            with enable_grad():
                return closure()

        parameters = self.param_groups[0]["params"]
        with no_grad():
            places = [parameter.clone() for parameter in parameters]
            try:
                return self._minimise(self.param_groups[0], evaluate)
            except BaseException:
                for parameter, place in zip(parameters, places, strict=True):
                    parameter.copy_(place)
                raise

    def _minimise(self, group: Group, closure: Callable[[], Any]) -> Any:
        first = group["params"][0]
        state = {"func_evals": 0, "n_iter": 0, "H_diag": 1.0, **self.state.get(first, {})}
        state["ro"] = list(state.get("ro", ()))
        for name in LISTS:
            state[name] = [vector.to(first) for vector in state.get(name, ())]
        for name in VECTORS:
            if name in state:
                state[name] = state[name].to(first)
        result = closure()
        loss, gradient, evaluations, made = float(result), self._gradient(group), 1, 0
        state["func_evals"] += 1
        while made < group["max_iter"] and not _largest(gradient) <= group["tolerance_grad"]:
            made, state["n_iter"] = made + 1, state["n_iter"] + 1
            d = _direction(state, gradient, group["history_size"])
            t = float(group["lr"])
            if state["n_iter"] == 1:
                t *= min(1.0, 1.0 / gradient.abs().sum().item())
            state.update(d=d, t=t, prev_flat_grad=gradient, prev_loss=loss)
            slope = _dot(gradient, d)
            if slope > -group["tolerance_change"]:
                break
            before = loss
            if group["line_search_fn"] is not None:
                start = Point(0.0, loss, gradient, slope)
                found, count = self._search(group, closure, start, d, t)
                t, loss, gradient = found.t, found.loss, found.gradient
                state["t"] = t
                self._move(group, d, t)
            else:
                count = int(made < group["max_iter"])
                self._move(group, d, t)
                if count:
                    loss, gradient = float(closure()), self._gradient(group)
            evaluations, state["func_evals"] = evaluations + count, state["func_evals"] + count
            if evaluations >= group["max_eval"] or abs(loss - before) < group["tolerance_change"]:
                break
            if _largest(d) * abs(t) <= group["tolerance_change"]:
                break
        self.state[first] = state
        return result

    def _search(self, group: Group, closure: Callable[[], Any], start: Point, d: Tensor, t: float) -> tuple[Point, int]:
        """The point along d that the line search finds, and the evaluations that it took; the parameters stay."""
        places = [parameter.clone() for parameter in group["params"]]

        def evaluate(t: float) -> Point:
            self._move(group, d, t)
            loss, gradient = float(closure()), self._gradient(group)
            for parameter, place in zip(group["params"], places, strict=True):
                parameter.copy_(place)
            return Point(t, loss, gradient, _dot(gradient, d))

        return strong_wolfe(evaluate, start, t, _largest(d))

    def _gradient(self, group: Group) -> Tensor:
        """All gradients side by side, in memory of their own   (N,); 0 where there is none"""
        parts = []
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                grad = Tensor(p.device.zeros(p.shape, p.dtype))
            self._check_gradient(p, grad)
            parts.append(grad.reshape(-1))
        return cat(parts) if len(parts) > 1 else parts[0].clone()

    def _move(self, group: Group, d: Tensor, t: float) -> None:
        """W += t d"""
        for parameter, part in zip(group["params"], _parts(group["params"], d), strict=True):
            parameter.add_(part, alpha=t)

    def _state_of_now(self) -> dict[str, Any]:
        """State as of other optimizers; that of the first parameter has PyTorch's names, and lists of vectors."""
        found = super()._state_of_now()
        for slots in found["state"].values():
            slots.update({name: [vector.numpy() for vector in slots.get(name, ())] for name in LISTS})
        return found

    def _checked_state(self, state_dict: Mapping[str, Any]) -> tuple[list[Group], dict[Tensor, Mapping[str, Any]]]:
        size = sum(int(p.size) for p in self.param_groups[0]["params"])
        for slots in state_dict.get("state", {}).values():
            for name in LISTS:
                if not isinstance(vectors := slots.get(name, ()), (list, tuple)):
                    raise CheckpointError(f"LBFGS: {name} is a {type_name(vectors)}, not a list of arrays")
            named = [(name, slots[name]) for name in VECTORS if name in slots]
            named += [(name, vector) for name in LISTS for vector in slots.get(name, ())]
            for name, value in named:
                if np.shape(value) != (size,):
                    raise CheckpointError(
                        f"LBFGS: {name} has shape {np.shape(value)}, the parameters have {size} elements"
                    )
        return super()._checked_state(state_dict)

    def _take_state(self, groups: list[Group], slots: Mapping[Tensor, Mapping[str, Any]]) -> None:
        super()._take_state(groups, slots)
        for parameter, values in self.state.items():
            for name in LISTS:
                values[name] = [tensor(vector, device=parameter.device) for vector in values.get(name, ())]


def _direction(state: dict[str, Any], gradient: Tensor, most: int) -> Tensor:
    """Minus the gradient multiplied by the estimate of the inverse Hessian, after the last step entered that   (N,)"""
    changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
    if state["n_iter"] > 1:
        change, step = gradient - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = _dot(change, step)
        if curvature > LEAST_CURVATURE:
            for held, new in ((changes, change), (steps, step), (inverses, 1.0 / curvature)):
                held.append(new)
                del held[:-most]
            state["H_diag"] = curvature / _dot(change, change)
    q: Tensor = -gradient
    shares = []
    for y, s, inverse in zip(reversed(changes), reversed(steps), reversed(inverses), strict=True):
        share = (s * q).sum() * inverse
        shares.append(share)
        q = q - y * share
    d: Tensor = q * state["H_diag"]
    for y, s, inverse, share in zip(changes, steps, inverses, reversed(shares), strict=True):
        d = d + s * (share - (y * d).sum() * inverse)
    return d


def _dot(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum())


def _largest(vector: Tensor) -> float:
    return float(vector.abs().max())


def _parts(parameters: Iterable[Tensor], vector: Tensor) -> Iterator[Tensor]:
    """The part of each parameter in a vector of all, in its shape."""
    start = 0
    for parameter in parameters:
        stop = start + int(parameter.size)
        yield vector[start:stop].reshape(parameter.shape)
        start = stop
