"""Module: the tree, its parameters and buffers, state, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import CheckpointError, Tensor, nn


class Net(nn.Module):
    """Every kind of attribute, and a parameter that is None."""

    def __init__(self) -> None:
        self.scale = nn.Parameter([2.0])
        self.offset: nn.Parameter | None = None
        self.count = nn.Buffer(np.zeros(1, np.float32))
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))
        self.heads = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])
        self.note = alpha.tensor([9.0])  # a plain tensor is not part of the model
        self.listed = [nn.Linear(1, 1)]

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x) * self.scale
        for head in self.heads:
            y = head(y)
        return y


NAMES = [
    "scale",
    "count",
    "body.0.weight",
    "body.0.bias",
    "body.2.weight",
    "heads.0.weight",
    "heads.0.bias",
    "heads.1.weight",
    "heads.1.bias",
]


def test_a_state_dict_shares_memory_with_the_module(device: str) -> None:
    """Memory may be written through the dict, as through PyTorch's: an exponential mean of weights is."""
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(device)
    shared, own, before = net.state_dict(), net.state_dict(keep_vars=True), net.state_dict().numpy()
    assert all(isinstance(value, Tensor) and not value.requires_grad for value in shared.values())
    assert own["0.weight"] is net[0].weight
    assert own["1.running_mean"] is net[1].running_mean
    for value in shared.values():
        value *= 0.5
        value += 1
    copied = copy.deepcopy(shared)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name] * np.float32(0.5) + 1)
    shared["0.bias"].zero_()
    assert net[0].bias.tolist() == [0, 0]
    assert copied["0.bias"].tolist() != [0, 0]
    assert list(net.state_dict(prefix="net.")) == [f"net.{name}" for name in before]


def test_names_come_in_order_of_assignment() -> None:
    net = Net()
    assert list(net.state_dict()) == NAMES
    assert [name for name, _ in net.named_parameters()] == [n for n in NAMES if n != "count"]
    assert [name for name, _ in net.named_buffers()] == ["count"]
    assert [name for name, _ in net.named_children()] == ["body", "heads"]
    assert list(net.children()) == [net.body, net.heads]
    assert len(list(net.modules())) == 8
    assert [name for name, _ in net.named_modules()][:3] == ["", "body", "body.0"]


def test_a_shared_module_counts_once() -> None:
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, nn.ReLU(), layer)
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias"]
    assert len(list(net.modules())) == 3
    assert [name for name, _ in net.named_modules(remove_duplicate=False)] == ["", "0", "1", "2"]
    x = alpha.tensor(np.ones((1, 2), np.float32))
    expected = layer(nn.functional.relu(layer(x)))
    np.testing.assert_array_equal(net(x).numpy(), expected.numpy())


def test_names_with_a_prefix_and_of_one_module_only() -> None:
    net = Net()
    net.tied = net.body[0].weight
    names = [name for name, _ in net.named_parameters("net")]
    assert names == [f"net.{name}" for name, _ in net.named_parameters()]
    for of, one, many in (
        (net.named_parameters, net.parameters, ["scale", "tied"]),
        (net.named_buffers, net.buffers, ["count"]),
        (net.named_tensors, None, ["scale", "count", "tied"]),
    ):
        assert [name for name, _ in of("a.b", False)] == [f"a.b.{name}" for name in many]
        if one is not None:
            assert [id(value) for value in one(recurse=False)] == [id(getattr(net, name)) for name in many]
    assert "tied" in dict(net.named_parameters(recurse=False))
    assert "body.0.weight" not in dict(net.named_parameters())
    assert "body.0.weight" in dict(net.named_parameters(remove_duplicate=False))
    net.twin = net.count
    assert [name for name, _ in net.named_buffers()] == ["count"]
    assert [name for name, _ in net.named_buffers(remove_duplicate=False)] == ["count", "twin"]


def test_parameters_take_what_tensor_takes() -> None:
    for values in ([1.0, 2.0], np.array([1, 2], np.float32), alpha.tensor([1.0, 2.0])):
        parameter = nn.Parameter(values)
        np.testing.assert_array_equal(parameter.numpy(), [1, 2])
        assert parameter.requires_grad
    assert not nn.Parameter([1.0], requires_grad=False).requires_grad
    with pytest.raises(TypeError, match="only floating tensors have gradients"):
        nn.Parameter([1, 2])


def test_train_eval_and_freezing() -> None:
    net = Net()
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    net.train()
    assert all(module.training for module in net.modules())
    net.body.requires_grad_(False)
    net(alpha.tensor(np.ones((1, 3), np.float32))).sum().backward()
    assert [n for n, p in net.named_parameters() if p.grad is not None] == [
        n for n in NAMES if n != "count" and not n.startswith("body")
    ]
    net.zero_grad()
    assert all(parameter.grad is None for parameter in net.parameters())


def test_state_goes_from_one_model_to_another(device: str) -> None:
    source, target = Net(), Net().to(device)
    state = source.state_dict().numpy()
    target.load_state_dict(state)
    for name, value in target.named_tensors():
        assert value.device.name == device
        np.testing.assert_array_equal(value.numpy(), state[name])
    state["scale"][0] = 77  # neither side is an alias
    assert source.scale.item() == target.scale.item() == 2.0


def test_load_state_dict_lists_every_mismatch_and_changes_nothing() -> None:
    net = Net()
    before = net.state_dict().numpy()
    state: dict[str, Any] = {name: value + 1 for name, value in before.items()}
    del state["scale"], state["body.0.bias"]
    state["body.0.weight"] = np.zeros((4, 5), np.float32)
    state["heads.0.bias"] = np.array(["a", "b"])
    state["tail.weight"] = np.zeros(3)
    with pytest.raises(CheckpointError) as error:
        net.load_state_dict(state)
    assert str(error.value).splitlines() == [
        "5 mismatches between the weights and Net:",
        "  shape       body.0.weight: the weights have (4, 5), the model (4, 3)",
        "  dtype       heads.0.bias: <U1 is not a number",
        "  missing     scale (1,)",
        "  missing     body.0.bias (4,)",
        "  unexpected  tail.weight",
    ]
    for name, value in net.state_dict().numpy().items():
        np.testing.assert_array_equal(value, before[name])


def test_load_state_dict_names_what_is_no_array() -> None:
    layer = nn.Linear(2, 2)
    for state in (None, 5, [1], "x"):
        with pytest.raises(TypeError, match=r"^load_state_dict: the state is a \w+, not a dict of arrays"):
            layer.load_state_dict(state)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError) as error:
        layer.load_state_dict({"weight": [[1, 2], [3]], "bias": {"a": 1}, 5: 1})  # type: ignore[dict-item]
    assert str(error.value).splitlines() == [
        "3 mismatches between the weights and Linear:",
        "  values      weight: lists of 1 and of 2 elements are side by side; all need one length",
        "  dtype       bias: object is not a number",
        "  unexpected  5",
    ]


def test_load_state_dict_not_strict() -> None:
    net = Net()
    keys = net.load_state_dict({"scale": alpha.tensor([5.0]), "tail": np.zeros(1)}, strict=False)
    assert net.scale.item() == 5.0
    assert keys.missing_keys == NAMES[1:]
    assert keys.unexpected_keys == ["tail"]
    assert net.load_state_dict(net.state_dict()) == ([], [])
    with pytest.raises(CheckpointError, match="1 mismatch between"):
        net.load_state_dict({"scale": np.zeros(2)}, strict=False)


def test_a_buffer_that_is_not_persistent(device: str) -> None:
    net = nn.Module()
    net.mask, net.mean = nn.Buffer([1.0, 0.0], persistent=False), nn.Buffer([3.0])
    for twin in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net)), net.to(device)):
        assert list(twin.state_dict()) == ["mean"]
        assert [name for name, _ in twin.named_buffers()] == ["mask", "mean"]
        assert twin.load_state_dict({"mean": np.zeros(1)}) == ([], [])
    assert net.mask.device.name == device
    net.mask = net.mask * 2.0  # the name stays what it is
    assert list(net.state_dict()) == ["mean"]
    net.mask = nn.Buffer([1.0])
    assert list(net.state_dict()) == ["mask", "mean"]


def test_a_buffer_that_comes_later(device: str) -> None:
    """A Tensor in the place of None is a Buffer, which is saved and moved; None takes it away and keeps the place."""
    net = nn.Module()
    net.register_buffer("table", None)
    net.register_buffer("scratch", None, persistent=False)
    assert not net.state_dict()
    net.table, net.scratch = alpha.ones(2), alpha.zeros(3)
    assert list(net.state_dict()) == ["table"]
    assert sorted(name for name, _ in net.named_buffers()) == ["scratch", "table"]
    assert net.to(device).table.device.name == device
    net.table = None
    assert not net.state_dict()
    twin = copy.deepcopy(net)
    twin.table = alpha.full((2,), 3.0)
    assert list(twin.state_dict()) == ["table"]
    assert net.table is None
    net.other = None
    net.other = alpha.ones(1)  # a plain tensor is no state
    assert not net.state_dict()


def test_deepcopy_is_independent(device: str) -> None:
    net = Net().to(device)
    x = alpha.tensor(np.ones((2, 3), np.float32), device=device)
    expected = net(x).numpy()
    twin = copy.deepcopy(net)
    with alpha.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.0)
    np.testing.assert_array_equal(twin(x).numpy(), expected)
    assert list(twin.state_dict()) == NAMES
    shared = nn.Sequential(net.body, net.body)
    copied = copy.deepcopy(shared)
    assert copied[0] is copied[1]


def test_to_and_astype(device: str) -> None:
    net = Net().to(device)
    assert net.device.name == device
    if device == "cpu":
        net.astype("float64")
        assert {value.dtype.name for _, value in net.named_tensors()} == {"float64"}
        net(alpha.tensor(np.ones((1, 3)))).sum().backward()
        with pytest.raises(TypeError, match="int32 is not a floating dtype"):
            net.astype("int32")
    assert nn.ReLU().device.name == "cpu"


@pytest.mark.parametrize(
    "change", [lambda net: net.to("cuda"), lambda net: net.astype("float64")], ids=["to", "astype"]
)
def test_gradients_of_the_device_or_dtype_before_are_dropped(change: Any) -> None:
    net = nn.Linear(2, 2)
    net(alpha.tensor(np.ones((1, 2), np.float32))).sum().backward()
    assert [p.grad for p in change(net).parameters()] == [None, None]


def test_weights_that_are_loaded_before_the_backward_pass_are_seen(device: str) -> None:
    net = nn.Linear(2, 2).to(device)
    y = net(alpha.tensor(np.ones((1, 2), np.float32), device=device, requires_grad=True))
    net.load_state_dict(net.state_dict())
    with pytest.raises(alpha.GradientError, match="written in place by load_state_dict"):
        y.sum().backward()


def test_to_takes_devices_dtypes_and_tensors(device: str) -> None:
    def found(net: nn.Module) -> set[tuple[str, str]]:
        return {(value.device.name, value.dtype.name) for value in net.parameters()}

    net = nn.Linear(2, 3)
    net.count = nn.Buffer(np.zeros((), np.int64))
    assert net.to(device) is net
    assert found(net) == {(device, "float32")}
    for dtype in ("float64", np.float64, np.dtype("float64")):
        assert found(net.to(dtype)) == {(device, "float64")}
        assert found(net.to(device, "float32")) == {(device, "float32")}
    assert found(net.double()) == {(device, "float64")}
    assert found(net.float()) == {(device, "float32")}
    assert found(net.to(alpha.zeros(1, dtype="float64", device="cpu"))) == {("cpu", "float64")}
    assert found(net.to(alpha.zeros(1, dtype="float64", device=device), "float32")) == {(device, "float32")}
    assert found(net.cpu().to(alpha.get_device(device))) == {(device, "float32")}
    assert found(net.to()) == {(device, "float32")}
    assert net.count.dtype == np.int64
    with pytest.raises(TypeError, match=r"'gpu' is neither a device .* nor a dtype"):
        net.to("gpu")
    with pytest.raises(TypeError, match="int64 is not a floating dtype"):
        net.to("cpu", "int64")
    assert found(net) == {(device, "float32")}


def test_cuda_and_cpu() -> None:
    net = nn.Linear(2, 3)
    assert net.cuda() is net
    assert net.device.name == "cuda"
    assert net.cpu().device.name == "cpu"


def test_zero_grad_with_zeros(device: str) -> None:
    net = nn.Linear(2, 3).to(device)
    net(alpha.ones(1, 2, device=device)).sum().backward()
    net.bias.grad = None
    net.zero_grad(set_to_none=False)
    assert net.bias.grad is None
    assert net.weight.grad is not None
    np.testing.assert_array_equal(net.weight.grad.numpy(), np.zeros((3, 2)))
    net.zero_grad()
    assert net.weight.grad is None


def test_parts_are_registered_under_new_names() -> None:
    net, values, layer = nn.Module(), alpha.tensor([1.0, 2.0]), nn.Linear(1, 1)
    net.register_buffer("mean", values)
    net.register_buffer("mask", values, persistent=False)
    net.register_buffer("later", None)
    net.register_parameter("scale", nn.Parameter([3.0]))
    net.register_parameter("offset", None)
    net.add_module("body", layer)
    net.register_module("head", None)
    assert isinstance(net.mean, nn.Buffer)
    assert net.mean.array is values.array
    assert [net.later, net.offset, net.head, net.body] == [None, None, None, layer]
    assert list(net.state_dict()) == ["mean", "scale", "body.weight", "body.bias"]
    assert [name for name, _ in net.named_buffers()] == ["mean", "mask"]
    net.register_buffer("later", values)
    net.add_module("body", nn.ReLU())
    assert list(net.state_dict()) == ["mean", "later", "scale"]


@pytest.mark.parametrize(("way", "own"), [("buffer", "count"), ("parameter", "scale"), ("module", "body")])
def test_parts_that_cannot_be_registered(way: str, own: str) -> None:
    net = Net()
    register = getattr(net, f"register_{way}")
    value = {"buffer": alpha.ones(1), "parameter": nn.Parameter([1.0]), "module": nn.ReLU()}[way]
    names = {"": "is empty", "a.b": "has a dot", "forward": "is another", "note": "is another"}
    names |= dict.fromkeys({"scale", "count", "body"} - {own}, "is another attribute")
    for name, why in names.items():
        with pytest.raises(KeyError, match=why):
            register(name, value)
    with pytest.raises(TypeError, match=r"the name 3 of a .* is not a string"):
        register(3, value)
    for other in (np.ones(1), nn.Parameter([1.0]) if way == "buffer" else nn.Buffer([1.0])):
        with pytest.raises(TypeError, match=r"Net\.new: a .* is not a (Tensor|Parameter|Module)"):
            register("new", other)
    register(own, value)


def test_parts_by_dotted_name() -> None:
    net = Net()
    assert net.get_submodule("") is net
    assert net.get_submodule("heads.1") is net.heads[1]
    assert net.get_parameter("body.0.weight") is net.body[0].weight
    assert net.get_buffer("count") is net.count
    for get, name in (
        (net.get_submodule, "body.7"),
        (net.get_submodule, "scale"),
        (net.get_parameter, "count"),
        (net.get_buffer, "body.0.weight"),
        (net.get_buffer, "x.y"),
    ):
        with pytest.raises(AttributeError, match=r"has no (Module|Parameter|Buffer) of the name"):
            get(name)


def kinds() -> nn.Module:
    net = nn.Module()
    net.weight, net.state, net.body = nn.Parameter([1.0]), nn.Buffer([1.0]), nn.ReLU()
    return net


@pytest.mark.parametrize("name", ["weight", "state", "body"])
@pytest.mark.parametrize(
    "value", [alpha.tensor([2.0]), nn.Parameter([2.0]), nn.Buffer([2.0]), nn.Tanh(), None, 2.0, np.ones(1), [2.0]]
)
def test_a_part_of_a_model_is_replaced_as_in_pytorch(name: str, value: Any) -> None:
    torch = pytest.importorskip("torch")
    net, twin = kinds(), torch.nn.Module()
    twin.weight = torch.nn.Parameter(torch.ones(1))
    twin.register_buffer("state", torch.ones(1))
    twin.body = torch.nn.ReLU()
    same: dict[type, Any] = {
        Tensor: torch.ones(1),
        nn.Parameter: torch.nn.Parameter(torch.ones(1)),
        nn.Buffer: torch.nn.Buffer(torch.ones(1)),
        nn.Tanh: torch.nn.Tanh(),
    }
    try:
        setattr(twin, name, same.get(type(value), value))
    except TypeError:
        with pytest.raises(TypeError, match=rf"Module.{name} is a .* cannot take its place; assign"):
            setattr(net, name, value)
        assert getattr(net, name) is not value
    else:
        setattr(net, name, value)
        assert getattr(net, name) is value or type(value) is Tensor
    assert set(net.state_dict()) == set(twin.state_dict())
    assert [n for n, _ in net.named_parameters()] == [n for n, _ in twin.named_parameters()]


def test_a_tensor_that_becomes_a_buffer_keeps_its_memory_and_graph() -> None:
    net = kinds()
    x = alpha.tensor([3.0], requires_grad=True)
    y = x * 2.0
    net.state = y
    assert isinstance(net.state, nn.Buffer)
    assert net.state.array is y.array
    (net.state * 5.0).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 10.0


def test_a_new_name_takes_anything() -> None:
    net = kinds()
    net.note = alpha.tensor([1.0])
    net.note = 3
    net.weight = None
    net.weight = nn.Parameter([4.0])
    assert list(net.state_dict()) == ["state", "weight"] or list(net.state_dict()) == ["weight", "state"]


def test_train_asks_each_child() -> None:
    class Frozen(nn.BatchNorm2d):
        def train(self, mode: bool = True) -> Frozen:
            return super().train(False)

    net = nn.Sequential(nn.Sequential(Frozen(3), nn.ReLU()), nn.BatchNorm2d(3)).train()
    assert [module.training for module in net.modules()] == [True, True, False, True, True]
    assert not any(module.training for module in net.eval().modules())


def test_a_model_may_have_a_device_of_its_own() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            self.device = "anywhere"  # type: ignore[assignment]
            self.is_hooked = None  # type: ignore[assignment]
            self.body = nn.Sequential(nn.Linear(2, 3), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x)

    net = Own()
    assert (net.device, net.is_hooked, net.body.device.name) == ("anywhere", None, "cpu")
    assert "9 parameters" in net.summary((1, 2))
    assert (copy.deepcopy(net).device, nn.Sequential(net, nn.ReLU())[0].device) == ("anywhere", "anywhere")
    assert isinstance(nn.Module.device.__doc__, str)


def test_apply_begins_with_the_children() -> None:
    order: list[str] = []
    net = nn.Sequential(nn.Sequential(nn.Linear(1, 1)), nn.ReLU())
    net.apply(lambda module: order.append(type(module).__name__))
    assert order == ["Linear", "Sequential", "ReLU", "Sequential"]


def test_apply_returns_the_module() -> None:
    def zero(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            module.weight.array[...] = 0

    net = Net().apply(zero)
    assert not net.body[0].weight.numpy().any()


def test_repr_shows_the_tree() -> None:
    assert repr(nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2, inplace=True))) == (
        "Sequential(\n  (0): Linear(3, 4, bias=True)\n  (1): LeakyReLU(negative_slope=0.2, inplace=True)\n)"
    )


def test_a_module_without_forward() -> None:
    with pytest.raises(TypeError, match="Blank defines no forward"):
        type("Blank", (nn.Module,), {})()(1)


def test_parts_under_pytorchs_private_names() -> None:
    net = Net()
    assert list(net._modules) == ["body", "heads"]
    assert list(net._parameters) == ["scale"]
    assert net._parameters.get("offset") is None
    assert [len(parts) for parts in (net._buffers, net._parameters, net.body._modules)] == [1, 1, 3]
    layer = net.body._modules["2"]
    assert layer is net.body[2]
    net.body._modules["1"] = nn.Tanh()
    assert [type(module).__name__ for module in net.body] == ["Linear", "Tanh", "Linear"]
    del net._buffers["count"]
    assert not hasattr(net, "count")
    net._parameters["offset"] = nn.Parameter([1.0])
    assert [name for name, _ in net.named_parameters(recurse=False)] == ["scale", "offset"]
    for name in ("body", "note"):
        with pytest.raises(KeyError, match=name):
            del net._parameters[name]
    with pytest.raises(TypeError, match="scale"):
        net._parameters["scale"] = 3


def test_bfloat16_parameters_are_refused() -> None:
    with pytest.raises(TypeError, match=r"parameters stay float32; under alpha\.precision\('bf16'\)"):
        nn.Linear(2, 2).bfloat16()
