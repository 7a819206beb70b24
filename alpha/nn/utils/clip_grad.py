"""Limits for gradients, without a wait for the device: call them between `backward` and the optimizer's step."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from alpha.autograd.shares import refuse_unreduced, share_of, shared_leaves
from alpha.autograd.versions import array_of
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import DeviceError, NonFiniteError
from alpha.ops.kernel.options import real
from alpha.ops.reduction.gradient_norm import clip_gradients, gradient_norm
from alpha.runtime.ranks import rank
from alpha.runtime.recording import phase

Tensors = Tensor | Iterable[Tensor]


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients of all parameters together so that their norm is at most `max_norm`.

    The norm is that of one vector of all gradients. Two kernels compute it, and one scales, whatever the number of
    parameters. Where parameters are shared out by a `ZeroRedundancyOptimizer`, the gradients of all ranks count, and
    all ranks call it at once with the same parameters. A norm that is not finite makes the gradients NaN or 0;
    `error_if_nonfinite` refuses it instead.

    Args:
        parameters: tensors; those without a gradient do not count.
        max_norm: the largest norm.
        norm_type: p of the p-norm, above 0; `math.inf` for the largest magnitude.
        error_if_nonfinite: raise an error if the norm is not finite, before anything changes. The norm is read for
            this, which waits for the device, and a step cannot be captured.
        foreach: changes nothing.

    Returns:
        The norm before scaling, ().

    Raises:
        NonFiniteError: the norm is not finite, if `error_if_nonfinite`; it is a `RuntimeError`.
        GradientError: gradients of parameters that other ranks update were not reduced.

    Examples:
        >>> import alpha
        >>> w = alpha.ones(4, requires_grad=True)
        >>> (w * 3).sum().backward()
        >>> alpha.nn.utils.clip_grad_norm_([w], 1.0).item()  # the norm before
        6.0
        >>> [round(value, 4) for value in w.grad.tolist()]
        [0.5, 0.5, 0.5, 0.5]
    """
    most = _natural("clip_grad_norm_", "max_norm", max_norm)
    listed = _listed(parameters)
    shared = [parameter for parameter in listed if share_of(parameter) is not None]
    refuse_unreduced("clip_grad_norm_", shared, rank())
    tensors = _with_gradients(listed)
    norm = _norm("clip_grad_norm_", _gradients(tensors), norm_type, error_if_nonfinite, shared)
    _clip("clip_grad_norm_", tensors, norm, most, math.inf)
    return norm


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limit each element of the gradients to [-clip_value, clip_value]; a NaN stays.

    Args:
        parameters: tensors; those without a gradient do not count.
        clip_value: at least 0.
        foreach: changes nothing.
    """
    bound = _natural("clip_grad_value_", "clip_value", clip_value)
    _clip("clip_grad_value_", _with_gradients(parameters), None, math.inf, bound)


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of one vector of all elements of the tensors, ().

    Args:
        tensors: for example gradients. While a `ZeroRedundancyOptimizer` has shared out parameters, all ranks call it
            at once, and the gradients of such parameters that any rank gives count.
        norm_type, error_if_nonfinite, foreach: as those of `clip_grad_norm_`.
    """
    listed = _listed(tensors)
    given = {id(tensor) for tensor in listed}
    # those of the device are the same on all ranks, whose lists may differ
    shared = [leaf for leaf, _ in shared_leaves() if not listed or leaf.device is listed[0].device]
    refuse_unreduced("get_total_norm", [leaf for leaf in shared if id(leaf._grad) in given], rank())
    return _norm("get_total_norm", listed, norm_type, error_if_nonfinite, shared)


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients of all parameters by min(1, max_norm / (total_norm + 1e-6)).

    Args:
        parameters: tensors; those without a gradient do not count.
        max_norm: the largest norm.
        total_norm: the norm of the gradients, () on their device, as `get_total_norm` computes it.
        foreach: changes nothing.
    """
    most = _natural("clip_grads_with_norm_", "max_norm", max_norm)
    if not isinstance(total_norm, Tensor) or total_norm.size != 1:
        raise TypeError("clip_grads_with_norm_: total_norm is no tensor of one element")
    _clip("clip_grads_with_norm_", _with_gradients(parameters), total_norm, most, math.inf)


def _natural(operator: str, name: str, value: float) -> float:
    checked = value if value == math.inf else real(operator, name, value)
    if checked < 0:
        raise ValueError(f"{operator}: {name}={value!r} is negative")
    return float(checked)


def _listed(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _with_gradients(parameters: Tensors) -> list[Tensor]:
    return [parameter for parameter in _listed(parameters) if parameter.grad is not None]


def _gradients(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.grad for tensor in tensors if tensor.grad is not None]


def _norm(
    operator: str, tensors: list[Tensor], norm_type: float, error_if_nonfinite: bool, shared: list[Tensor]
) -> Tensor:
    """The norm of gradients, with those that other ranks have of `shared` parameters."""
    p = norm_type if norm_type == math.inf else real(operator, "norm_type", norm_type)
    if p <= 0:
        raise ValueError(f"{operator}: norm_type={norm_type!r} is not above 0")
    if not tensors and not shared:
        return Tensor(np.zeros((), np.float32))
    _require_one_device(operator, [*tensors, *shared])
    with phase("update"):
        norm = _norm_of_ranks(tensors, float(p), shared) if shared else _norm_here(tensors, float(p))
    if error_if_nonfinite and not math.isfinite(norm.item()):
        raise NonFiniteError(f"{operator}: the norm of the gradients is {norm.item()}; nothing was changed")
    return norm


def _norm_here(tensors: list[Tensor], p: float) -> Tensor:
    return Tensor(gradient_norm([*map(array_of, tensors)], p))


def _norm_of_ranks(tensors: list[Tensor], p: float, shared: list[Tensor]) -> Tensor:
    """The norm of the norms of all ranks' shares, and of the gradients that each rank has."""
    from alpha.distributed.collectives import all_gather  # `import alpha` does not load it

    of_share = {id(parameter._grad) for parameter in shared}
    own = [tensor for tensor in tensors if id(tensor) in of_share]
    everywhere = [tensor for tensor in tensors if id(tensor) not in of_share]
    device, dtype = shared[0].device, np.result_type(*[tensor.dtype for tensor in (*shared, *tensors)])
    exact = np.dtype(np.float64 if device.name == "cpu" else np.float32)
    norm: Array = gradient_norm([*map(array_of, own)], p) if own else device.zeros((), exact)
    norms = all_gather(Tensor(norm).astype(exact))
    return _norm_here([norms, *everywhere], p).astype(dtype)


def _clip(operator: str, tensors: list[Tensor], norm: Tensor | None, most: float, bound: float) -> None:
    gradients = _gradients(tensors)
    if not gradients:
        return
    _require_one_device(operator, gradients if norm is None else [*gradients, norm])
    with phase("update"):
        clip_gradients([*map(array_of, gradients)], None if norm is None else norm.array, most, bound)
    for gradient in gradients:
        gradient._version.bump(operator)


def _require_one_device(operator: str, tensors: list[Tensor]) -> None:
    names = sorted({tensor.device.name for tensor in tensors})
    if len(names) > 1:
        raise DeviceError(f"{operator}: the gradients are on {' and '.join(names)}; clip those of one device at a time")
