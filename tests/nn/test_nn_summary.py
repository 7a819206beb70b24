"""summary: shapes, parameters, FLOPs, bytes and skipped zeros of a net that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

import alpha
from alpha import ShapeError, Tensor, nn
from alpha.nn.summary import Row, _arguments, _bytes, trace
from alpha.runtime.cuda.planning.driver_dry import DryDevice


class Net(nn.Module):
    """A convolution, BN and an activation in BN's memory, a product in forward, a linear layer."""

    def __init__(self) -> None:
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.act = nn.LeakyReLU(inplace=True)
        self.mix = nn.Parameter(np.eye(8, dtype=np.float32))
        self.fc = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.bn(self.conv(x)))
        return self.fc((y @ self.mix).flatten(1))


def rows_of(model: nn.Module, shape: tuple[int, ...]) -> dict[str, Row]:
    return {row.name: row for row in trace(model, _arguments(model, shape, None))}


def test_counts_by_hand(device: str) -> None:
    rows = rows_of(Net().to(device), (2, 4, 4, 3))
    assert list(rows) == ["conv", "bn", "act", "fc", "(model)"]
    floats = [row.cost.kept // 4 for row in rows.values()]
    image, map_size = 2 * 4 * 4 * 3, 2 * 4 * 4 * 8
    assert floats == [image, map_size, map_size, map_size, 0]
    assert rows["conv"].cost.flops == 2 * map_size * 27
    # per axis 2 of 4 positions see all 3 taps, 2 see 2: (10 / 12)^2
    assert rows["conv"].cost.useful / rows["conv"].cost.flops == pytest.approx(100 / 144)
    assert rows["fc"].cost.flops == 2 * 2 * 128 * 10
    assert rows["(model)"].cost.flops == 2 * map_size * 8  # the product in its own forward
    assert [row.parameters for row in rows.values()] == [216, 16, 0, 1290, 64]
    assert [row.shape for row in rows.values()] == [(2, 4, 4, 8), (2, 4, 4, 8), (2, 4, 4, 8), (2, 10), (2, 10)]


def test_bytes_that_operators_read_and_write(device: str) -> None:
    """Each operand and each result once; a view moves nothing."""
    net = Net().to(device)
    expected = {name: 4 * count for name, count in moved_numbers().items()}
    assert {name: row.cost.moved for name, row in rows_of(net, (2, 4, 4, 3)).items()} == expected


def moved_numbers() -> dict[str, int]:
    """Numbers that the layers of Net move, in float32, for a batch of (2, 4, 4, 3)."""
    image, maps = 2 * 4 * 4 * 3, 2 * 4 * 4 * 8
    return {
        "conv": image + 216 + maps,
        "bn": 2 * maps + 16,
        "act": 2 * maps,
        "fc": 2 * 128 + 1290 + 2 * 10,
        "(model)": 2 * maps + 64,
    }


def test_bytes_are_those_of_the_precision() -> None:
    """Products in bfloat16 read operands of two bytes; on the cpu, which computes in float32, nothing changes."""
    maps, numbers = 2 * 4 * 4 * 8, moved_numbers()
    halved = {
        "conv": numbers["conv"] * 2,
        "bn": 2 * maps * 2 + 16 * 4,
        "act": 2 * maps * 2,
        "fc": numbers["fc"] * 2 + 10 * 2,  # the bias is float32
        "(model)": numbers["(model)"] * 2,
    }
    with alpha.precision("bf16"):
        on_gpu = rows_of(Net().to(DryDevice.of("sm_80")), (2, 4, 4, 3))
        on_cpu = rows_of(Net(), (2, 4, 4, 3))
    assert {name: row.cost.moved for name, row in on_gpu.items()} == halved
    assert {name: row.cost.moved for name, row in on_cpu.items()} == {name: 4 * n for name, n in numbers.items()}


def test_a_model_gets_an_image_of_its_own_dtype() -> None:
    assert rows_of(nn.Linear(3, 4).astype("float64"), (2, 3))["(model)"].cost.kept == 8 * 2 * 3


def test_zeros_that_are_skipped(device: str) -> None:
    """Zeros come from padding, and in a transposed convolution from the stride, which puts them between operands."""
    strided = nn.ConvTranspose2d(2, 3, 2, stride=2, bias=False).to(device)
    (row,) = rows_of(strided, (1, 4, 4, 2)).values()
    assert row.cost.useful == row.cost.flops  # no padding
    assert row.cost.useful / row.cost.convolution == 1 / 4
    table = strided.summary((1, 4, 4, 2)).splitlines()
    assert table[2].split()[-3:-1] == ["75.0%", f"{4 * (32 + 24 + 192) / 2**10:.2f}K"]
    padded = nn.Conv2d(2, 3, 3, padding=1, bias=False).to(device)
    assert padded.summary((1, 4, 4, 2)).splitlines()[2].split()[-3] == "30.6%"  # 1 - (10 / 12)^2


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, ""),
        (1000, "0.98K"),
        (10239, "10.0K"),
        (102400, "100K"),
        (1023999, "0.98M"),
        (2**20, "1.00M"),
        (5**15, "28.4G"),
    ],
)
def test_bytes_have_three_digits(count: int, text: str) -> None:
    assert _bytes(count) == text


def test_a_frozen_part_keeps_nothing() -> None:
    net = Net()
    net.conv.requires_grad_(False)
    net.bn.requires_grad_(False)
    rows = rows_of(net, (2, 4, 4, 3))
    assert rows["conv"].cost.kept == rows["bn"].cost.kept == rows["act"].cost.kept == 0
    assert rows["conv"].cost.flops == 2 * 256 * 27
    assert not net.conv.weight.requires_grad
    assert "of them trained" in net.summary((2, 4, 4, 3))


class Two(nn.Module):
    """A model of words and of what they weigh."""

    def __init__(self) -> None:
        self.table = nn.Embedding(5, 4)
        self.fc = nn.Linear(4, 2)

    def forward(self, words: Tensor, weight: Tensor | None = None) -> Tensor:
        y = self.table(words)
        return self.fc(y if weight is None else y * weight)


def test_inputs_of_any_dtype_and_number(device: str) -> None:
    net = Two().to(device)
    words, weight = alpha.tensor([[0, 1, 4], [3, 2, 1]], device=device), alpha.ones(2, 3, 1, device=device)
    by_shape, by_tensor = net.summary((2, 3), "int64"), net.summary(words)
    assert by_shape == net.summary((2, 3), dtype=np.int64) == by_tensor == net.summary((words,))
    assert "Two on (2, 3): 30 parameters" in by_shape
    assert "Two on (2, 3), (2, 3, 1): 30 parameters" in net.summary((words, weight))
    assert "Linear on (1, 4)" in nn.Linear(4, 2).to("cpu").astype("float64").summary((1, 4))
    with pytest.raises(TypeError, match="embedding"):
        net.summary((2, 3))
    with pytest.raises(ValueError, match="summary: dtype='int64' belongs to a shape"):
        net.summary(words, "int64")


def test_the_module_is_left_as_it_was() -> None:
    net = Net()
    net.bn.eval()
    before = net.state_dict().numpy()
    for shape in ((2, 4, 4, 3), (2, 4, 4, 5)):
        if shape[3] == 3:
            net.summary(shape)
        else:
            with pytest.raises(ShapeError, match="x has 5 channels"):
                net.summary(shape)
        assert net.training
        assert net.conv.training
        assert not net.bn.training
        assert not any(module._forward_hooks or module._pre_hooks for module in net.modules())
        assert all(parameter.grad is None for parameter in net.parameters())
        for name, value in net.state_dict().numpy().items():
            np.testing.assert_array_equal(value, before[name])


@pytest.mark.slow
def test_the_table() -> None:
    text = alpha.models.resnet18().summary((1, 32, 32, 3))
    lines = text.splitlines()
    assert lines[0].split() == ["layer", "type", "output", "parameters", "MFLOP", "skipped", "moved", "kept"]
    assert lines[2].split() == ["conv1", "Conv2d", "(1,", "16,", "16,", "64)", "9,408", "4.8", "10.4%", "113K", "12.0K"]
    assert lines[-2] == "ResNet on (1, 32, 32, 3): 12,619,722 parameters, precision float32"
    assert lines[-1].startswith("A forward pass: 0.31 GFLOP, 52.3 MiB read and written, ")
    assert max(map(len, lines)) <= 100
    with alpha.precision("tf32"):
        other = alpha.models.resnet18().summary((1, 32, 32, 3))
    assert other.splitlines()[-2].endswith(", precision float32")  # of the cpu


class Sides(nn.Module):
    """Batch normalisations of each kind: undone, not undone, whose output nobody keeps, and with a dropout behind."""

    def __init__(self) -> None:
        self.a, self.b = (
            nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), act) for act in (nn.LeakyReLU(0.2), nn.ReLU())
        )
        self.conv, self.bn, self.drop = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.bn(self.conv(self.b(self.a(x)))).mean((1, 2)))


@pytest.mark.parametrize(
    ("mode", "sides"),
    [
        ("balanced", {"a.1": "output", "b.1": "both", "bn": "input"}),
        ("least", {"a.1": "output", "b.1": "input, again", "bn": "input"}),
    ],
)
def test_what_batch_normalisations_keep_in_a_memory_mode(mode: str, sides: dict[str, str]) -> None:
    """The column is there only in such a mode; nothing of the model changes, and no random number is drawn."""
    model, shape = Sides(), (2, 7, 7, 4)
    assert "keeps" not in model.summary(shape)
    before, state = {k: v.numpy().copy() for k, v in model.state_dict().items()}, alpha.get_rng_state()
    with alpha.memory_mode(mode):
        text = model.summary(shape)
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert {name: lines[name][text.index("keeps") :] for name in sides} == sides
    assert text.splitlines()[-1].startswith(f'In the memory mode "{mode}" batch normalisations keep: output (1)')
    assert alpha.get_rng_state() == state
    assert model.training
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    with alpha.memory_mode(mode):  # one value for each channel
        assert "is unknown (" in nn.Sequential(nn.BatchNorm1d(3)).summary((1, 3))


def test_the_table_is_a_str_that_shows_as_it_is_printed() -> None:
    table = nn.Linear(2, 3).summary((1, 2))
    assert isinstance(table, str)
    assert repr(table) == f"{table}" == str(table)
    assert "\n" in repr(table)
    assert "\\n" not in repr(table)


def test_shared_modules_and_other_outputs() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> dict[str, list[Tensor]]:
            return {"out": [self.layer(self.layer(x))]}

    rows = trace(Twice(), (alpha.zeros(3, 4),))
    assert [(row.name, row.parameters) for row in rows] == [("layer", 20), ("layer", 0)]


def test_every_array_that_an_operator_keeps_is_counted() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            self.a, self.b = nn.Linear(4, 6, bias=False), nn.Linear(4, 6, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(x) * self.b(x)

    rows = rows_of(Product(), (3, 4))
    assert rows["(model)"].cost.kept == 4 * 2 * 3 * 6  # both factors
