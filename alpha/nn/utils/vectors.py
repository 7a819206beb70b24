"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from alpha.autograd.grad_mode import no_grad
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError, type_name
from alpha.ops.array.joining import cat


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters one after the other, a copy; gradients flow back   (...), (...), .. -> (count,)"""
    return cat([parameter.reshape(-1) for parameter in _listed("parameters_to_vector", parameters)])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy the elements of a vector into the parameters, in their order   vec (count,)

    Unlike PyTorch's, the parameters keep their own memory. A vector with more elements than the parameters have is
    refused, too.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters: vec is a {type_name(vec)}, a Tensor is needed")
    given = _listed("vector_to_parameters", parameters)
    count = sum(parameter.numel() for parameter in given)
    if vec.shape != (count,):
        raise ShapeError(f"vector_to_parameters: the parameters have {count} elements  (vec {vec.shape})")
    start = 0
    with no_grad():
        for parameter in given:
            end = start + parameter.numel()
            parameter.copy_(vec[start:end].reshape(parameter.shape))
            start = end


def _listed(operator: str, parameters: Iterable[Tensor]) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        raise TypeError(f"{operator}: parameters is one tensor; give a list of them")
    listed = list(parameters)
    for parameter in listed:
        if not isinstance(parameter, Tensor):
            raise TypeError(f"{operator}: a {type_name(parameter)} is no parameter")
    return listed
