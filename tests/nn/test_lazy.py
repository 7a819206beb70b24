"""Lazy layers: what they are before their first forward, and that they are the plain layers behind it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from rows.families import lazy
from rows.kinds import LayerRow
from trials import trials

import alpha
from alpha import CheckpointError, ShapeError, Tensor, UninitializedError, nn
from alpha.io.serialization import save_weights
from alpha.nn.lazy import LazyModuleMixin

X = np.random.default_rng(0).standard_normal((2, 6, 5, 3)).astype(np.float32)
ROWS = pytest.mark.parametrize("row", lazy.LAYERS, ids=lambda row: row.name)


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.LazyConv2d(4, 3, padding=1), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)
    )


def plain(row: LayerRow, settings: dict[str, Any], channels: int) -> nn.Module:
    kind: Any = row.layer.cls_to_become  # type: ignore[attr-defined]
    if "affine" in row.arguments and "InstanceNorm" in row.name:
        settings = {"affine": True, "track_running_stats": True, **settings}
    return kind(channels, **settings)  # type: ignore[no-any-return]


@ROWS
def test_the_first_forward_makes_the_plain_layer(row: LayerRow, device: str) -> None:
    """Parameters are drawn as the plain layer's; results, statistics, gradients, repr and state are the same."""
    with trials() as trial:
        for settings in (settings for settings, _ in row.shapes):
            with trial(settings):
                x = alpha.tensor(row.inputs[0], device=device)
                alpha.manual_seed(3)
                expected = plain(row, settings, x.shape[-1]).to(device)
                following = alpha.core.rng.uniform((2,))
                layer = row.layer(**settings).to(device)
                held = list(layer.parameters())
                assert layer.device.name == device
                assert repr(layer).startswith(f"{row.name}(0, ")
                alpha.manual_seed(3)
                y = layer(x)
                np.testing.assert_array_equal(alpha.core.rng.uniform((2,)), following)
                assert type(layer) is type(expected)
                assert repr(layer) == repr(expected)
                assert all(a is b and type(a) is nn.Parameter for a, b in zip(layer.parameters(), held, strict=True))
                assert all(type(b) is nn.Buffer for b in layer.buffers())
                np.testing.assert_array_equal(y.numpy(), expected(x).numpy())
                state = expected.state_dict().numpy()
                assert list(layer.state_dict()) == list(state)
                for name, value in layer.state_dict().numpy().items():
                    np.testing.assert_array_equal(value, state[name])
                (y * y).sum().backward()
                assert all(p.grad is not None for p in held)
                assert {v.device.name for _, v in layer.named_tensors()} <= {device}


def test_uninitialised_parameters_say_so() -> None:
    layer = nn.LazyLinear(4)
    weight = layer.weight
    assert isinstance(weight, nn.UninitializedParameter)
    assert isinstance(weight, nn.Parameter)
    assert repr(weight) == "UninitializedParameter(float32, device='cpu')"
    assert (weight.dtype.name, weight.device.name, weight.is_cuda) == ("float32", "cpu", False)
    assert (weight.is_leaf, weight.requires_grad, weight.grad) == (True, True, None)
    uses: list[Any] = [
        lambda: weight.shape,
        lambda: weight.ndim,
        lambda: weight.numel(),
        lambda: sum(p.size for p in layer.parameters()),
        lambda: weight.numpy(),
        lambda: weight.sum(),
        lambda: weight + 1.0,
        lambda: len(weight),
        lambda: nn.functional.linear(alpha.ones(2, 3), weight),
        lambda: nn.init.ones_(weight),
        lambda: nn.utils.parameters_to_vector(layer.parameters()),
        lambda: weight.add_(1.0),
    ]
    with trials() as trial:
        for number, use in enumerate(uses):
            with trial(number), pytest.raises(UninitializedError, match="before the first forward of its layer; call"):
                use()
    assert issubclass(UninitializedError, (RuntimeError, ValueError))


def test_messages_and_reprs_without_a_shape() -> None:
    parameter = nn.UninitializedParameter()
    with pytest.raises(ValueError, match="SGD: a parameter uninitialised comes twice"):
        alpha.optim.SGD([parameter, parameter])
    assert repr(nn.ParameterList([parameter, nn.Parameter([1.0])])) == "ParameterList(0: uninitialised, 1: (1,))"
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyLinear(3))
    model[1].weight = model[0].weight
    weight = np.ones((3, 3), np.float32)
    model.load_state_dict({"0.weight": weight, "0.bias": weight[0], "1.bias": weight[0]})
    assert model[1].weight is model[0].weight
    assert model(alpha.ones(1, 3)).tolist() == [[13] * 3]


def test_moved_and_frozen_before_the_first_forward(device: str) -> None:
    dtype = "float64" if device == "cpu" else "float32"  # of convolutions
    model = net().double().to(device, dtype).requires_grad_(False)
    assert all(value.dtype.name == dtype for _, value in model.named_tensors())
    x = alpha.tensor(X, dtype=dtype, device=device)
    model(x)
    assert {value.dtype.name for _, value in model.named_tensors()} == {dtype}
    assert {value.device.name for _, value in model.named_tensors()} == {device}
    assert not any(p.requires_grad for p in model.parameters())
    assert nn.LazyLinear(3).to("float64").weight.dtype.name == "float64"
    model = net()
    model.zero_grad()
    assert model[0].weight.requires_grad_(False).requires_grad is False


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_precisions(precision: str, device: str) -> None:
    x = alpha.tensor(X, device=device)
    with alpha.precision(precision):
        alpha.manual_seed(1)
        first = net().to(device)
        y = first(x)
        twin = copy.deepcopy(first).train()
        twin[1].load_state_dict(nn.BatchNorm2d(4).state_dict())
        np.testing.assert_array_equal(y.float().numpy(), twin(x).float().numpy())
    assert {p.dtype.name for p in first.parameters()} == {"float32"}


def test_initialisers_behind_a_dry_run() -> None:
    model = net()

    def ones(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.ones_(module.weight)

    with pytest.raises(UninitializedError, match="UninitializedParameter: it has no shape"):
        model.apply(ones)
    with alpha.no_grad():
        model(alpha.zeros(1, 6, 5, 3))
    model.apply(ones)
    assert (model[4].weight.numpy() == 1).all()
    assert model[4].weight.shape == (5, 120)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_copies(copied: Any, device: str) -> None:
    """A copy before the first forward has parameters of its own, with the same settings."""
    model = net().to(device)
    model[0].requires_grad_(False)
    model[1].running_mean.persistent = False
    other = copied(model)
    assert repr(other) == repr(model)
    assert [p.requires_grad for p in other.parameters()] == [p.requires_grad for p in model.parameters()]
    other(alpha.tensor(X, device=device))
    assert type(other[0]) is nn.Conv2d
    assert type(model[0]) is nn.LazyConv2d
    assert isinstance(model[0].weight, nn.UninitializedParameter)
    assert "1.running_mean" not in other.state_dict()
    assert {value.device.name for _, value in other.named_tensors()} == {device}
    again = copied(other)
    assert type(again[4]) is nn.Linear


def test_optimizers_that_are_made_before_the_first_forward(device: str) -> None:
    """The parameters stay the same objects, as in PyTorch, and those without values are passed over."""
    model = net().to(device)
    optimizer = alpha.optim.Adam(model.parameters(), lr=0.1)
    optimizer.step()
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    assert not optimizer.state
    y = model(alpha.tensor(X, device=device))
    before = model[4].bias.numpy()
    (y * y).sum().backward()
    optimizer.step()
    assert len(optimizer.state) == 6
    assert (model[4].bias.numpy() != before).all()
    with pytest.raises(UninitializedError, match="before the first forward"):
        alpha.optim.Muon(nn.LazyLinear(2, bias=False).parameters())


# -- weights by name ------------------------------------------------------------------------------------


def test_state_before_the_first_forward(tmp_path: Any) -> None:
    model, other = net().double(), net()
    state = model.state_dict().numpy()
    assert list(state) == [f"{i}.{n}" for i, n in _names()]
    assert isinstance(state["0.weight"], nn.UninitializedParameter)
    assert isinstance(state["1.running_mean"], nn.UninitializedBuffer)
    assert state["0.weight"] is not model[0].weight
    assert state["0.weight"].dtype.name == "float64"
    assert other.load_state_dict(pickle.loads(pickle.dumps(state))) == ([], [])
    assert isinstance(other[0].weight, nn.UninitializedParameter)
    other(alpha.tensor(X))
    with pytest.raises(CheckpointError, match=r"0\.weight: the weights are of a lazy layer before its first forward"):
        other.load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"'0\.weight' is a UninitializedParameter, not an array of weights"):
        save_weights(tmp_path / "w.safetensors", state)


def _names() -> list[tuple[int, str]]:
    both = ["weight", "bias"]
    return [(i, n) for i, names in ((0, both), (1, [*both, "running_mean", "running_var"]), (4, both)) for n in names]


@ROWS
def test_loaded_weights_initialise(row: LayerRow, device: str) -> None:
    """The class changes with the first forward, as in PyTorch, which draws nothing then."""
    settings, _ = row.shapes[0]
    x = alpha.tensor(row.inputs[0], device=device)
    expected = plain(row, settings, x.shape[-1]).to(device)
    layer = row.layer(**settings).to(device)
    parameters = list(layer.parameters())
    layer.load_state_dict(expected.state_dict())
    assert type(layer) is row.layer
    assert all(a is b and type(a) is nn.Parameter for a, b in zip(layer.parameters(), parameters, strict=True))
    alpha.manual_seed(2)
    before = alpha.core.rng.default.state()
    y = layer(x)
    assert str(alpha.core.rng.default.state()) == str(before)
    assert type(layer) is type(expected)
    np.testing.assert_array_equal(y.numpy(), expected(x).numpy())
    assert repr(layer) == repr(expected)


def test_some_loaded_weights() -> None:
    """The other parameters are drawn with the number of channels of the loaded ones."""
    weight = np.ones((4, 3), np.float32)
    layer = nn.LazyLinear(4)
    assert layer.load_state_dict({"weight": weight}, strict=False) == (["bias"], [])
    np.testing.assert_array_equal(layer.weight.numpy(), weight)
    with pytest.raises(CheckpointError, match=r"missing     bias \(4,\)"):
        nn.LazyLinear(4).load_state_dict({"weight": weight})
    with pytest.raises(ShapeError, match="x has 5 features but weight expects 3"):
        layer(alpha.ones(2, 5))
    assert layer(alpha.ones(2, 3)).shape == (2, 4)
    assert layer.bias is not None
    assert np.abs(layer.bias.numpy()).max() <= 3**-0.5
    grouped = nn.LazyConv2d(4, 1, groups=2)
    grouped.load_state_dict({"weight": np.ones((4, 1, 1, 3), np.float32)}, strict=False, layout="NHWC")
    assert grouped(alpha.ones(1, 2, 2, 6)).shape == (1, 2, 2, 4)
    assert grouped.in_channels == 6


@pytest.mark.parametrize(
    ("layer", "state", "message"),
    [
        (nn.LazyLinear(4), {"weight": (5, 3)}, r"weight: the weights have \(5, 3\), the model \(4, any\)"),
        (nn.LazyLinear(4), {"weight": (4,)}, r"weight: the weights have \(4,\), the model \(4, any\)"),
        (nn.LazyLinear(4), {"bias": (3,)}, r"bias: the weights have \(3,\), the model \(4,\)"),
        (nn.LazyConv1d(4, 3), {"weight": (4, 5, 2)}, r"\(4, 5, 2\), the model \(4, 3, any\)"),
        (nn.LazyConv1d(4, 3), {"weight": (4, 5, 3)}, r"the model \(4, 3, any\); they fit with layout='NCHW'"),
        (nn.LazyConv1d(4, 3), {"weight": (4, 3, 3)}, "NHWC or NCHW cannot be told from the shape"),
        (nn.LazyConvTranspose1d(4, 3, groups=2), {"weight": (6, 3, 4)}, r"the model \(any, 3, 2\)"),
        (nn.LazyBatchNorm1d(), {"weight": (2, 2)}, r"the model \(any\,\)"),
    ],
)
def test_weights_that_do_not_fit(layer: nn.Module, state: dict[str, Any], message: str) -> None:
    arrays = {name: np.zeros(shape, np.float32) for name, shape in state.items()}
    with pytest.raises(CheckpointError, match=message):
        layer.load_state_dict(arrays, strict=False)
    assert all(isinstance(p, nn.UninitializedParameter) for p in layer.parameters())


@pytest.mark.torch
def test_weights_of_pytorch() -> None:
    """PyTorch's weights, in their layout, initialise; and both libraries make the same layers of lazy ones."""
    torch = pytest.importorskip("torch")
    twin = torch.nn.Sequential(
        torch.nn.LazyConv2d(4, 3, padding=1), torch.nn.LazyBatchNorm2d(), torch.nn.LazyConvTranspose2d(2, 2, stride=2)
    )
    expected = twin(torch.tensor(X).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).detach().numpy()
    model = nn.Sequential(nn.LazyConv2d(4, 3, padding=1), nn.LazyBatchNorm2d(), nn.LazyConvTranspose2d(2, 2, stride=2))
    model.load_state_dict(twin.state_dict(), layout="NCHW")
    np.testing.assert_allclose(model(alpha.tensor(X)).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert [type(m).__name__ for m in model] == [type(m).__name__ for m in twin]


# -- inputs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (lambda: nn.LazyLinear(2), (), r"LazyLinear: x \(..., in_features\) is needed"),
        (lambda: nn.LazyConv2d(2, 1), (3, 4), r"LazyConv2d: x \(H, W, C\) or \(N, H, W, C\) is needed"),
        (lambda: nn.LazyConvTranspose1d(2, 1), (1, 2, 3, 4), "LazyConvTranspose1d: x"),
        (lambda: nn.LazyBatchNorm2d(), (2, 3), r"LazyBatchNorm2d: x \(N, H, W, C\) is needed"),
        (lambda: nn.LazyInstanceNorm3d(), (2, 3), r"LazyInstanceNorm3d: x \(D, H, W, C\) or"),
        (lambda: nn.LazyConv2d(4, 1, groups=2), (1, 2, 2, 3), "in_channels=3 does not divide into groups=2"),
        (lambda: nn.LazyLinear(2), (2, 0), "Linear: in_features=0 must be at least 1"),
    ],
)
def test_inputs_that_are_refused_leave_the_layer(make: Any, shape: tuple[int, ...], message: str) -> None:
    layer = make()
    kind = type(layer)
    with pytest.raises(ValueError, match=message):
        layer(alpha.ones(shape))
    assert type(layer) is kind
    assert layer.has_uninitialized_params()


def test_arguments_that_are_refused() -> None:
    for make, message in (
        (lambda: nn.LazyLinear(0), "LazyLinear: out_features=0"),
        (lambda: nn.LazyConv2d(3, 1, groups=2), "LazyConv2d: out_channels=3 does not divide into groups=2"),
        (lambda: nn.LazyConv2d(0, 1), "LazyConv2d: out_channels=0 must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            make()  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match="Conv2d: in_channels=0 must be at least 1"):
        nn.Conv2d(0, 4, 3)
    with pytest.raises(ValueError, match="InstanceNorm2d: num_features=0 must be at least 1"):
        nn.InstanceNorm2d(0)


def test_hooks_and_a_sequential_around(device: str) -> None:
    """Hooks of the user stay; what a Sequential computes with one kernel is what the layers compute one by one."""
    seen: list[str] = []
    model = net().to(device)
    model[0].register_forward_pre_hook(lambda m, a: seen.append(type(m).__name__))
    handle = model[4].register_forward_hook(lambda m, a, y: seen.append(type(m).__name__))
    x = alpha.tensor(X, device=device)
    alpha.manual_seed(4)
    y = model(x)
    handle.remove()
    assert seen == ["Conv2d", "Linear"]
    alpha.manual_seed(4)
    first, *rest = net().to(device)
    z = first(x)
    for module in rest:
        z = module(z)
    np.testing.assert_allclose(y.numpy(), z.numpy(), rtol=1e-5, atol=1e-6)
    assert model(x).shape == y.shape
    assert seen == ["Conv2d", "Linear", "Conv2d"]


def test_a_module_that_is_used_twice_and_a_checkpoint() -> None:
    layer = nn.LazyLinear(3)
    both = nn.Sequential(layer, nn.Tanh(), layer)
    x = alpha.tensor(X[..., :3], requires_grad=True)
    y = alpha.checkpoint(both, x)
    assert type(layer) is nn.Linear
    (y * y).sum().backward()
    assert x.grad is not None
    assert layer.weight.grad is not None


# -- lazy modules of one's own --------------------------------------------------------------------------


class Scale(LazyModuleMixin):
    """Y = scale X, with a scale for each of the last axis."""

    def __init__(self) -> None:
        self.scale = nn.UninitializedParameter()
        self.seen = nn.UninitializedBuffer(dtype="int64")

    def initialize_parameters(self, x: Tensor, twice: bool = False) -> None:
        self.scale.materialize(x.shape[-1:])  # type: ignore[union-attr]
        if not twice:
            self.seen.materialize(())  # type: ignore[union-attr]

    def forward(self, x: Tensor, twice: bool = False) -> Tensor:
        return x * self.scale


def test_a_lazy_module_of_ones_own(device: str) -> None:
    layer = Scale().to(device)
    assert layer.has_uninitialized_params()
    with pytest.raises(UninitializedError, match="Scale: initialize_parameters has left seen uninitialised"):
        Scale()(alpha.ones(2, 3), twice=True)
    y = layer(alpha.ones(2, 3, device=device))
    np.testing.assert_array_equal(y.numpy(), np.zeros((2, 3)))
    assert type(layer) is Scale
    assert not layer.has_uninitialized_params()
    assert (layer.scale.shape, layer.scale.device.name, layer.seen.dtype.name) == ((3,), device, "int64")
    assert layer._pre_hooks == ()
    free = nn.UninitializedParameter(requires_grad=False)
    free.materialize((2, 3), device=device, dtype="float64")
    assert (type(free), free.shape, free.dtype.name, free.device.name) == (nn.Parameter, (2, 3), "float64", device)
    assert not free.requires_grad
    with pytest.raises(NotImplementedError, match="LazyModuleMixin defines no initialize_parameters"):
        LazyModuleMixin()(alpha.ones(1))


def test_a_summary_leaves_the_model_lazy() -> None:
    model, twin = net(), net()
    alpha.manual_seed(6)
    table = str(model.summary((1, 6, 5, 3)))
    following = alpha.core.rng.uniform((2,))
    assert type(model[0]) is nn.LazyConv2d
    assert all(isinstance(p, nn.UninitializedParameter) for p in model.parameters())
    twin(alpha.zeros(1, 6, 5, 3))
    assert table == str(twin.summary((1, 6, 5, 3)))
    assert "Lazy" not in table
    alpha.manual_seed(6)
    np.testing.assert_array_equal(alpha.core.rng.uniform((2,)), following)
