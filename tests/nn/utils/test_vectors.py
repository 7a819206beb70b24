"""Parameters as one vector."""

from __future__ import annotations

import numpy as np
import pytest

import alpha
from alpha import ShapeError, nn
from alpha.nn import utils


def test_parameters_as_one_vector(device: str) -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1, bias=False)).to(device)
    vector = utils.parameters_to_vector(net.parameters())
    np.testing.assert_array_equal(vector.numpy(), np.concatenate([p.numpy().ravel() for p in net.parameters()]))
    (vector * vector).sum().backward()
    for p in net.parameters():
        assert p.grad is not None
        np.testing.assert_allclose(p.grad.numpy(), 2 * p.numpy(), rtol=1e-6)
    arrays = [p.array for p in net.parameters()]
    utils.vector_to_parameters(vector.detach() * 2, net.parameters())
    np.testing.assert_allclose(utils.parameters_to_vector(net.parameters()).numpy(), 2 * vector.numpy())
    assert all(p.array is array for p, array in zip(net.parameters(), arrays, strict=True))
    for count in (11, 13):
        message = rf"vector_to_parameters: the parameters have 12 elements  \(vec \({count}"
        with pytest.raises(ShapeError, match=message):
            utils.vector_to_parameters(alpha.ones(count, device=device), net.parameters())
    with pytest.raises(TypeError, match="vector_to_parameters: vec is a list"):
        utils.vector_to_parameters([1.0], net.parameters())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="parameters_to_vector: a int is no parameter"):
        utils.parameters_to_vector([1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="parameters_to_vector: parameters is one tensor"):
        utils.parameters_to_vector(vector)
