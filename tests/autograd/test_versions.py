"""Writes in place are counted: what changes the bytes of a tensor raises its version, and no graph loses what it saved.

All tensors that can be reached are compared before and after each stage of a step: inputs, results, parameters,
buffers, gradients, and all arrays that nodes of a graph keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from rows.every import FUNCTIONS, LAYERS
from rows.kinds import FunctionRow, LayerRow, each
from rows.optimizers import OPTIMIZERS, OptimizerRow
from trials import trials

import alpha
from alpha import GradientError, Tensor, nn, optim
from alpha.autograd.function import Function
from alpha.nn import functional as F
from alpha.nn import utils
from alpha.optim import swa_utils

ArrayArg = Iterator[tuple[str, Tensor]]


def tensors_in(name: str, value: Any, met: set[int]) -> ArrayArg:
    """The tensors of a value: of a list, a dict, a module, and the gradients of them all."""
    if id(value) in met:
        return
    met.add(id(value))
    if isinstance(value, Tensor):
        yield name, value
        yield from tensors_in(f"{name}.grad", value.grad, met)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from tensors_in(f"{name}[{key if isinstance(key, str) else type(key).__name__}]", part, met)
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from tensors_in(f"{name}[{i}]", part, met)
    elif isinstance(value, (nn.Module, optim.Optimizer)):
        yield from tensors_in(name, vars(value), met)


def nodes_behind(tensors: list[Tensor]) -> list[Function]:
    found: list[Function] = []
    left = [tensor._node for tensor in tensors if tensor._node is not None]
    while left:
        node = left.pop()
        if node not in found:
            found.append(node)
            left += [edge for edge in node.edges if isinstance(edge, Function)]
    return found


def arrays_in(value: Any) -> Iterator[Any]:
    """The arrays of a value that a node keeps."""
    if isinstance(value, Tensor):
        yield value.array
    elif hasattr(value, "nbytes") and hasattr(value, "dtype"):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from arrays_in(part)
    elif isinstance(value, dict):
        yield from arrays_in(list(value.values()))


def content(array: Any) -> bytes:
    return Tensor(array).numpy().tobytes()


class Watch:
    """All tensors that some objects lead to; `check` fails after a stage in which a write was not counted."""

    def __init__(self, **roots: Any) -> None:
        self.roots = roots
        self.graphs: list[tuple[Function, list[tuple[Any, bytes]]]] = []
        self.look()

    def look(self) -> None:
        found = tensors_in("", self.roots, set())
        self.tensors = [(name, t, content(t.array), t._version, t._version.value) for name, t in found]

    def keep(self, *results: Tensor) -> None:
        """Watch the graph behind the results, too."""
        for node in nodes_behind(list(results)):
            kept = [a for key, value in vars(node).items() if key != "edges" for a in arrays_in(value)]
            self.graphs.append((node, [(array, content(array)) for array in kept]))

    def check(self, stage: str) -> None:
        for name, tensor, before, version, value in self.tensors:
            if content(tensor.array) != before:
                assert tensor._version is version
                assert version.value > value, f"{stage}: {name} was written, and its version did not grow"
        for node, kept in self.graphs:
            changed = [array.shape for array, before in kept if content(array) != before]
            if changed:
                with pytest.raises(GradientError, match="was written in place by"):
                    node.saved  # noqa: B018
        self.look()


def leaves_and_given(arrays: dict[str, Any], constants: tuple[Any, ...], device: str) -> tuple[list[Tensor], Any]:
    """Leaves, and what a call is given: results of operators, which may be written in place."""
    leaves: list[Tensor] = []

    def put(name: str, array: np.ndarray) -> Tensor:
        trained = array.dtype.kind == "f" and name not in constants and not name.startswith("running")
        leaves.append(alpha.tensor(array, requires_grad=trained, device=device))
        return leaves[-1] * 1.0 if trained else leaves[-1]

    return leaves, {n: each(lambda array, n=n: put(n, array), value) for n, value in arrays.items()}


def flat(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [part for value in result or () for part in flat(value)] if isinstance(result, (list, tuple)) else []


def backward(results: list[Tensor]) -> None:
    for y in results:
        if y.requires_grad:
            y.backward(alpha.ones_like(y), retain_graph=True)


def stages(watch: Watch, call: Callable[[], Any], parameters: list[Any]) -> None:
    """Forward, backward twice, forward again, an update of what is trained; with all graphs alive."""
    alpha.manual_seed(2)
    results = flat(call())
    watch.check("forward")
    watch.roots["results"] = results
    watch.keep(*results)
    watch.look()
    backward(results)
    watch.check("backward")
    for tensor in (*parameters, *results):
        if tensor.grad is not None:  # a graph reads the gradient
            probe = alpha.ones_like(tensor.grad).requires_grad_() * tensor.grad
            watch.keep(probe)
    backward(results)
    watch.check("a second backward")
    watch.keep(*flat(call()))
    watch.check("a second forward")
    trained = [tensor for tensor in parameters if tensor.grad is not None and tensor._node is None]
    if trained:
        optim.SGD(trained, lr=0.5).step()
        watch.check("an update")


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_functions(row: FunctionRow) -> None:
    leaves, given = leaves_and_given(dict(row.usual), row.constants, "cpu")
    inplace = [False, True] if "inplace" in row.arguments and not row.arguments["inplace"].refused else [False]
    written = row.name.endswith("_")
    for more in inplace:
        options = {**given, "inplace": True} if more else given
        watch = Watch(leaves=leaves, given=given)
        if written or more:  # a second call would write what the first graph reads, which is refused
            alpha.manual_seed(2)
            results = flat(row.function(**options))
            watch.check("forward")
            watch.keep(*results)
            backward(results)
            watch.check("backward")
        else:
            stages(watch, partial(row.function, **options), leaves)


@pytest.mark.parametrize("row", LAYERS, ids=lambda row: row.name)
def test_layers(row: LayerRow) -> None:
    alpha.manual_seed(4)
    module = row.layer(**row.usual)
    arrays = {str(i): array for i, array in enumerate(row.inputs)}
    with trials() as trial:
        for training in (True, False):
            with trial("training" if training else "evaluation"):
                leaves, given = leaves_and_given(arrays, tuple(map(str, row.constants)), "cpu")
                module.train(training)
                module(*given.values())  # a lazy layer has its parameters from here on
                watch = Watch(module=module, leaves=leaves, given=given)
                stages(watch, partial(module, *given.values()), [*module.parameters(), *leaves])


# -- whole networks ---------------------------------------------------------------------------------


class Residual(nn.Module):
    """Convolutions with the batch normalisations behind them, one with a residual, and a layer that is checkpointed."""

    def __init__(self) -> None:
        self.conv, self.bn = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.again, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4, momentum=None)
        self.part = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = nn.conv_batch_norm(self.conv, self.bn, x, F.relu)
        x = nn.conv_batch_norm(self.again, self.bn2, x, F.relu, x)
        return alpha.checkpoint(self.part, self.part(x))


NETS: dict[str, Callable[[], nn.Module]] = {
    "fused": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1)),
    "residual": Residual,
    "in place": lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(inplace=True), nn.InstanceNorm2d(4), nn.Flatten()),
    "normed": lambda: nn.Sequential(utils.spectral_norm(nn.Conv2d(3, 4, 1)), utils.weight_norm(nn.Conv2d(4, 2, 1))),
}
IMAGES = np.random.default_rng(0).standard_normal((4, 5, 6, 3)).astype(np.float32)


def of_net(name: str, device: str) -> tuple[nn.Module, Tensor, Callable[[], list[Tensor]]]:
    alpha.manual_seed(4)
    net = NETS[name]().to(device)
    x = alpha.tensor(IMAGES, device=device, requires_grad=True)
    return net, x, lambda: flat(net(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_networks(device: str, name: str) -> None:
    net, x, call = of_net(name, device)
    with trials() as trial:
        for training in (True, False):
            with trial("training" if training else "evaluation"):
                net.train(training)
                net.zero_grad()
                stages(Watch(net=net, x=x), call, [*net.parameters(), x])


def averaged(net: nn.Module) -> swa_utils.AveragedModel:
    return swa_utils.AveragedModel(net, use_buffers=True)


# whatever else writes the tensors of a network: by name, what is done with the network and an average of it
WRITES: dict[str, Callable[[nn.Module, swa_utils.AveragedModel, Tensor], Any]] = {
    "clip_grad_norm_": lambda net, average, x: utils.clip_grad_norm_(net.parameters(), 1e-3),
    "clip_grads_with_norm_": lambda net, average, x: utils.clip_grads_with_norm_(
        net.parameters(), 1e-3, alpha.tensor(1.0, device=x.device)
    ),
    "clip_grad_value_": lambda net, average, x: utils.clip_grad_value_(net.parameters(), 1e-3),
    "load_state_dict": lambda net, average, x: net.load_state_dict(
        {key: value + 1 for key, value in net.state_dict().numpy().items()}, layout="NHWC"
    ),
    "vector_to_parameters": lambda net, average, x: utils.vector_to_parameters(
        utils.parameters_to_vector(net.parameters()) + 1.0, net.parameters()
    ),
    "update_parameters": lambda net, average, x: average.update_parameters(net),
    "update_bn": lambda net, average, x: swa_utils.update_bn([x.detach() * 3.0], net),
    "update_bn without batches": lambda net, average, x: swa_utils.update_bn([], net),
    "a step in training": lambda net, average, x: net.train()(x),
    "reset_parameters": lambda net, average, x: [m.reset_parameters() for m in net.modules() if hasattr(m, "eps")],
    "reset_running_stats": lambda net, average, x: [
        m.reset_running_stats() for m in net.modules() if hasattr(m, "reset_running_stats")
    ],
    "zero_grad": lambda net, average, x: optim.SGD(net.parameters(), lr=0.1).zero_grad(set_to_none=False),
    "nn.init": lambda net, average, x: [nn.init.uniform_(p) for p in net.parameters()],
    "data": lambda net, average, x: [p.data.mul_(2.0) for p in net.parameters()],
    "no_grad": lambda net, average, x: doubled(net),
    "views": lambda net, average, x: [p.detach().reshape(-1)[0:1].fill_(7.0) for p in net.parameters()],
    "setitem": lambda net, average, x: [p.detach().__setitem__(0, 7.0) for p in net.parameters()],
}


@alpha.no_grad()
def doubled(net: nn.Module) -> None:
    for parameter in net.parameters():
        parameter.mul_(2.0)


@pytest.mark.parametrize("write", WRITES)
def test_other_writes(device: str, write: str) -> None:
    net, x, call = of_net("fused", device)
    average = averaged(net)
    results = call()
    backward(results)
    net.eval()
    results += call()
    watch = Watch(net=net, average=average, x=x)
    watch.keep(*results, *flat(average(x)))
    WRITES[write](net, average, x)
    watch.check(write)


def test_captured_steps(device: str) -> None:
    """Writes of a captured step to the program's tensors are counted, in a call that runs and in a replay."""
    net, x, call = of_net("fused", device)
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    backward(call())  # gradients to which the step adds

    @alpha.capture
    def step(x: Tensor) -> Tensor:
        loss = net(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    watch = Watch(net=net, x=x)
    for number in range(6):
        for parameter in net.parameters():
            assert parameter.grad is not None
            watch.keep(alpha.ones_like(parameter).requires_grad_() * parameter.grad)
        watch.keep(*call())
        watch.look()
        step(x.detach())
        watch.check(f"call {number}")
    assert device == "cpu" or step.graphs


@pytest.mark.parametrize("row", OPTIMIZERS, ids=lambda row: row.name)
def test_optimizers(device: str, row: OptimizerRow) -> None:
    """Parameters, gradients and state in three steps of each setting; a graph that has read the parameters is told."""
    with trials() as trial:
        for settings in row.settings if device == "cpu" else row.settings[:1]:
            with trial(settings):
                rng = np.random.default_rng(0)
                shapes = row.fitting([(3, 4), (5,)])
                weights = [
                    nn.Parameter(alpha.tensor(rng.standard_normal(shape).astype(np.float32), device=device))
                    for shape in shapes
                ]
                optimizer = row.kind(weights, **settings)
                watch = Watch(weights=weights, optimizer=optimizer)
                for step in range(3):
                    for weight in weights:
                        weight.grad = alpha.tensor(rng.standard_normal(weight.shape).astype(np.float32), device=device)
                    watch.keep(*((weight * weight) for weight in weights))
                    watch.look()
                    optimizer.step()
                    watch.check(f"step {step}")
