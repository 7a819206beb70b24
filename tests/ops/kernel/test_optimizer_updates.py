"""The fused updates: several steps against PyTorch's optimizers, and the table of chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import assert_close

import alpha
from alpha.core.primitive import shares_memory
from alpha.ops.kernel.tables.chunk_tables import CHUNK, CONSTANTS, MOST_LISTS, TABLES, table_writer
from alpha.optim.adam import AdamNumbers, adam_update
from alpha.optim.fused import Decay
from alpha.optim.sgd import SgdNumbers, sgd_update
from alpha.runtime import recording
from alpha.runtime.recording import StepValue

SIZES = ((3,), (4, 5), (1,), (CHUNK + 7,))
STEPS = 4
ADAM = [(decay, decoupled) for decay in (0.0, 0.1) for decoupled in (False, True)]
SGD = [(0.0, False, 0.0), (0.9, False, 0.0), (0.9, True, 0.01), (0.0, False, 0.1)]


PLAIN_SGD = StepValue.fixed(SgdNumbers(Decay(), 1.0))


def _device_table(device: Any, addresses: tuple[tuple[int, ...], ...], sizes: tuple[int, ...]) -> Any:
    return table_writer(device, addresses, sizes, ())()


def arrays(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(size).astype(np.float32) for size in SIZES]


def upload(device: str, values: list[np.ndarray]) -> list[Any]:
    return [alpha.get_device(device).upload(v) for v in values]


def compare(device: str, ours: list[Any], theirs: list[Any]) -> None:
    for mine, his in zip(ours, theirs, strict=True):
        assert_close(alpha.get_device(device).download(mine), his.detach().numpy(), 64)


def torch_steps(make: Any) -> list[Any]:
    """The parameters after the same steps by a PyTorch optimizer in float64."""
    torch = pytest.importorskip("torch")
    parameters = [torch.tensor(v.astype(np.float64), requires_grad=True) for v in arrays(0)]
    optimizer = make(torch.optim, parameters)
    for step in range(STEPS):
        for p, g in zip(parameters, arrays(10 + step), strict=True):
            p.grad = torch.tensor(g.astype(np.float64))
        optimizer.step()
    return parameters


@pytest.mark.torch
@pytest.mark.parametrize(("decay", "decoupled"), ADAM)
def test_adam_as_in_pytorch(device: str, decay: float, decoupled: bool) -> None:
    parameters = upload(device, arrays(0))
    first, second = (upload(device, [np.zeros_like(v) for v in arrays(0)]) for _ in range(2))
    for step in range(STEPS):
        gradients = upload(device, arrays(10 + step))
        decays = Decay(shrink=1 - 0.01 * decay) if decoupled else Decay(l2=decay)
        numbers = AdamNumbers.of({"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6}, step + 1, decays)
        adam_update(parameters, gradients, [first, second, []], StepValue.fixed(numbers))
    name = "AdamW" if decoupled else "Adam"
    compare(device, parameters, torch_steps(lambda optim, ps: getattr(optim, name)(ps, 0.01, (0.8, 0.95), 1e-6, decay)))


@pytest.mark.torch
@pytest.mark.parametrize(("momentum", "nesterov", "decay"), SGD)
def test_sgd_as_in_pytorch(device: str, momentum: float, nesterov: bool, decay: float) -> None:
    parameters = upload(device, arrays(0))
    velocities = upload(device, [np.zeros_like(v) for v in arrays(0)]) if momentum else []
    for step in range(STEPS):
        gradients = upload(device, arrays(10 + step))
        numbers = SgdNumbers(Decay(l2=decay), 0.05, momentum, 1.0, nesterov)
        sgd_update(parameters, gradients, [velocities], StepValue.fixed(numbers))
    compare(device, parameters, torch_steps(lambda optim, ps: optim.SGD(ps, 0.05, momentum, 0, decay, nesterov)))


def test_views_off_every_alignment(device: str) -> None:
    """A parameter may begin anywhere in its memory."""
    target = alpha.get_device(device)
    whole = [target.upload(np.arange(21, dtype=np.float32).reshape(7, 3)) for _ in range(2)]
    parameter, gradient = (a[2:6] if device == "cpu" else a.slice_rows(2, 6) for a in whole)
    sgd_update([parameter], [gradient], [[]], PLAIN_SGD)
    expected = np.arange(21, dtype=np.float32).reshape(7, 3)
    expected[2:6] = 0
    np.testing.assert_array_equal(target.download(whole[0]), expected)


def test_a_parameter_without_elements(device: str) -> None:
    empty, one = upload(device, [np.zeros(0, np.float32), np.ones(3, np.float32)])
    sgd_update([empty, one], [empty, one], [[]], PLAIN_SGD)
    sgd_update([empty], [empty], [[]], PLAIN_SGD)
    np.testing.assert_array_equal(alpha.get_device(device).download(one), [0, 0, 0])


def test_the_table_of_chunks_is_kept() -> None:
    device: Any = alpha.get_device("cuda")
    addresses = ((1024, 2048, 4096), (3072, 5120, 6144))
    sizes = (5, 0, 2 * CHUNK + 1)
    table = _device_table(device, addresses, sizes)
    assert _device_table(device, addresses, sizes) is table
    np.testing.assert_array_equal(
        device.download(table),
        [[1024, 3072, 0, 5], [4096, 6144, 0, CHUNK], [4096, 6144, CHUNK, CHUNK], [4096, 6144, 2 * CHUNK, 1]],
    )


def test_a_new_table_replaces_the_one_that_was_used_longest_ago() -> None:
    device: Any = alpha.get_device("cuda")
    sizes = (7, 9, CHUNK + 3)

    def table(number: int) -> Any:
        return _device_table(device, ((number, number + 1, number + 2),), sizes)

    tables = [table(number) for number in range(TABLES)]
    live = device.memory_stats().allocations
    assert table(0) is tables[0]
    assert table(50) is tables[1], "the one of 0 was used since"
    assert device.memory_stats().allocations == live, "no memory is asked for"
    assert [table(number) is tables[number] for number in range(TABLES)] == [True, False, False, False]
    for number in range(100):
        np.testing.assert_array_equal(
            device.download(table(number))[:, 0], [number, number + 1, number + 2, number + 2]
        )


def test_tables_of_few_lists_of_parameters_are_kept() -> None:
    device: Any = alpha.get_device("cuda")
    for size in range(1, 3 * MOST_LISTS):
        _device_table(device, ((0,),), (size,))
    live = device.memory_stats().allocations
    for size in range(3 * MOST_LISTS, 5 * MOST_LISTS):
        _device_table(device, ((0,),), (size,))
    assert device.memory_stats().allocations == live


def test_the_table_of_a_captured_step_is_never_written_again() -> None:
    device: Any = alpha.get_device("cuda")
    with recording.recorded(recording.Recording(capturing=False)):
        captured = _device_table(device, ((1, 2),), (3, 4))
    others = [_device_table(device, ((number, 0),), (3, 4)) for number in range(2 * TABLES)]
    assert not shares_memory(captured, others)
    np.testing.assert_array_equal(device.download(captured)[:, 0], [1, 2])


def test_other_dtypes_are_refused_on_cuda() -> None:
    x = upload("cuda", [np.ones(3)])
    with pytest.raises(TypeError, match="cuda computes in float32, not float64"):
        sgd_update(x, x, [[]], PLAIN_SGD)


def test_a_step_with_many_groups_finds_its_tables_again() -> None:
    """Captures of a step are compared by the addresses of its tables, so none may be made anew."""
    device: Any = alpha.get_device("cuda")
    with recording.recorded(recording.Recording(False)):
        first, again = ([_device_table(device, ((i,),), (1,)) for i in range(1000)] for _ in range(2))
    CONSTANTS.clear()
    assert [*map(id, first)] == [*map(id, again)]
