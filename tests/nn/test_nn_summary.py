"""summary: shapes, parameters, FLOPs, bytes and skipped zeros of a net that can be counted by hand."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import ShapeError, Tensor, nn
from alpha.nn.summary.model_summary import Row, _arguments, _bytes, trace
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
    """Zeros that count come from padding; those that a stride would put between operands are nobody's products."""
    strided = nn.ConvTranspose2d(2, 3, 2, stride=2, bias=False).to(device)
    (row,) = rows_of(strided, (1, 4, 4, 2)).values()
    assert row.cost.useful == row.cost.convolution == row.cost.flops  # no padding
    table = strided.summary((1, 4, 4, 2)).splitlines()
    assert table[2].split()[-3:-1] == ["0.0%", f"{4 * (32 + 24 + 192) / 2**10:.2f}K"]
    padded = nn.Conv2d(2, 3, 3, padding=1, bias=False).to(device)
    assert padded.summary((1, 4, 4, 2)).splitlines()[2].split()[-3] == "30.6%"  # 1 - (10 / 12)^2


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strided": {"stride": 2},
    "dilated": {"dilation": 2},
    "strided and dilated": {"stride": 2, "dilation": 3},
    "grouped": {"groups": 2},
    "grouped, strided and dilated": {"groups": 2, "stride": 3, "dilation": 2},
    "depthwise": {"groups": 8},
}


def pairs_of(i: int, o: int, f: int, s: int, p: int, d: int) -> int:
    """The number of outputs and taps of an axis that meet an input, one by one."""
    return sum(0 <= at * s - p + tap * d < i for at in range(o) for tap in range(f))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True], ids=["conv", "transposed"])
def test_operations_that_are_not_skipped_are_those_that_are_computed(kind: str, rank: int, transposed: bool) -> None:
    """MFLOP x (1 - skipped) is a count of single products, in the line, in all, and in a profile of the layer."""
    options = KINDS[kind]
    layer = getattr(nn, f"Conv{'Transpose' * transposed}{rank}d")(8, 16, 3, padding=2, **options)
    shape = (2, *(7, 9, 5)[:rank], 8)
    x = alpha.ones(shape)
    s, d, groups = options.get("stride", 1), options.get("dilation", 1), options.get("groups", 1)
    within, around = shape[1:-1], layer(x).shape[1:-1]
    axes = list(zip(around, within, strict=True) if transposed else zip(within, around, strict=True))
    each = 2 * 2 * 8 * 16 // groups  # operations of a pixel of one map and a tap, of both images
    computed = each * math.prod(pairs_of(i, o, 3, s, 2, d) for i, o in axes)
    (cost,) = [row.cost for row in rows_of(layer, shape).values()]
    assert cost.flops == cost.convolution == each * math.prod(3 * o for _, o in axes)
    assert cost.useful == pytest.approx(computed)
    with alpha.profile() as p:
        layer(x)
    profiled = sum(event.work.flop for event in p.events)
    assert profiled == pytest.approx(computed) if groups == 1 else profiled >= computed  # groups are put together
    # with a linear layer behind it, all in one: the share of all operations
    model = nn.Sequential(layer, nn.Linear(16, 1000))
    lines = [re.split(r" {2,}", line) for line in model.summary(shape).splitlines()]
    flops = cost.flops + 2 * 2 * math.prod(around) * 16 * 1000
    total = next(line for line in lines if line[0] == "total")
    assert total[2:4] == [f"{flops / 1e6:,.1f}", f"{(cost.flops - computed) / flops:.1%}"]
    assert lines[2][5] == f"{1 - computed / cost.flops:.1%}"


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


@pytest.mark.parametrize("mode", ["balanced", "least"])
def test_bytes_are_those_of_fast_in_each_mode(mode: str, device: str) -> None:
    """The mode in force changes no column but "keeps", and the text says whose the bytes are."""
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.LeakyReLU(0.2), nn.Conv2d(32, 8, 3), nn.ReLU())
    net.to(device)  # "least" does not keep the output of the first convolution, which reads an image
    fast = net.summary((2, 12, 12, 3)).splitlines()
    with alpha.memory_mode(mode):
        lines = net.summary((2, 12, 12, 3)).splitlines()
    assert [line[: len(fast[0])].rstrip() for line in lines[2:7]] == fast[2:7]
    assert lines[-3:-1] == [fast[-1], 'The bytes kept are those of the memory mode "fast"']


@pytest.mark.parametrize("mode", ["balanced", "least"])
def test_batch_normalisations_of_which_nothing_is_known_are_counted(mode: str) -> None:
    """A layer that no image reaches, or in a branch that is not taken, has a weight all the same."""

    class Branch(nn.Module):
        def __init__(self) -> None:
            self.taken, self.other = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
            self.plain = nn.BatchNorm2d(3, affine=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.taken(self.plain(x))

    with alpha.memory_mode(mode):
        assert "keep: unknown (2: " in Branch().summary((0, 4, 4, 3))
        assert "keep: input (1), unknown (1: " in Branch().summary((2, 4, 4, 3))
        for model in (nn.BatchNorm2d(3, affine=False), nn.ReLU()):
            assert "keep: nothing, there are none with a weight" in model.summary((0, 4, 4, 3))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ((2, 3.5), TypeError, r"summary: input_shape\[1\]=3.5 is not an integer"),
        ((True, 3), TypeError, r"summary: input_shape\[0\]=True is not an integer"),
        ((2.0, 3), TypeError, r"summary: input_shape\[0\]=2.0 is not an integer"),
        (("2", 3), TypeError, r"summary: input_shape\[0\]='2' is not an integer"),
        (3.5, TypeError, r"summary: input_shape\[0\]=3.5 is not an integer"),
        ((-1, 3), ValueError, r"summary: input_shape\[0\]=-1 must be at least 0"),
        ((alpha.ones(2, 3), 5), TypeError, "summary: an example of Tensors has int among them; give Tensors alone"),
    ],
)
def test_what_is_no_shape_is_refused(given: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        nn.Linear(3, 4).summary(given)


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


class Drawing(nn.Module):
    """A model that draws random numbers in evaluation, too, as one of latent variables."""

    def __init__(self) -> None:
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.LeakyReLU(0.2), nn.Flatten())
        self.fc = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        mean = self.fc(self.body(x))
        return mean + alpha.randn(*mean.shape, device=x.device) * nn.functional.dropout(mean, 0.5, training=True)


@pytest.mark.parametrize("mode", ["fast", "balanced", "least"])
@pytest.mark.parametrize("context", [alpha.no_grad, alpha.inference_mode, alpha.enable_grad])
def test_a_summary_is_the_same_in_each_grad_mode(context: Any, mode: str, device: str) -> None:
    """All operators are recorded for it, wherever it is called, and no random number is drawn."""
    net, state = Drawing().to(device), alpha.get_rng_state()
    with alpha.memory_mode(mode):
        expected = net.summary((2, 6, 6, 3))
        with context():
            assert net.summary((2, 6, 6, 3)) == expected
            assert alpha.is_grad_enabled() is (context is alpha.enable_grad)
    assert alpha.get_rng_state() == state
    assert rows_of(net, (2, 6, 6, 3))["fc"].cost.flops == 2 * 2 * 64 * 8
