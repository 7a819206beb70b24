"""`python -m alpha.port`: what it finds in programs of PyTorch, and in what it finds nothing."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import FrameType

import pytest
from port_rows import HEAD, NET, SEQUENCE, VOLUME, all_rows

import alpha.port
from alpha.port import read_program
from alpha.port.__main__ import main
from alpha.port.findings import Findings
from alpha.port.program import NotAProgram
from alpha.port.rules_of_calls import DIM_IS_FIRST, DIM_IS_SECOND

PORT = Path(alpha.port.__file__).parent
RULES = [PORT / "program_axes.py", *sorted(PORT.glob("rules*.py"))]


def found(lines: str, *levels: str) -> list[str]:
    """The reasons for changes in a program of these lines behind its imports."""
    findings = read_program(HEAD + lines)
    wanted = levels or ("change", "look")
    return [finding.why for finding in findings if finding.level in wanted and finding.line > HEAD.count("\n")]


# lines that mean the same in Alpha
SAME = [
    *("y = torch.cat([y, y], 0)", "n = y.size(0)", "y = F.relu(y).pow(2)[0]"),
    *("s = nn.Softmax(dim=1)(self.fc(y))", "z = np.argmax(s, axis=1)", "y[0] = 0"),
    *("z = torch.einsum('bnd,bmd->bnm', q, k)", "z = self.fc.weight.size(1)", "z[:, 1:3, 2:4] = 0"),
    *("z = y.select(0, 1)", "z = y.narrow(0, 1, 2)", "z = torch.index_select(y, 0, i)"),
    *("z = y.gather(0, i)", "z = y.diff(1, 0)", "z = y.topk(1, 0)"),
    *("y = F.interpolate(y, scale_factor=2)", "y = F.max_pool2d(y, 2) + self.conv(x)", "z = s.argmax(-1)"),
]


def places() -> set[tuple[str, int]]:
    """The places that report: the file and the first line of each call of `report`, or of `add` of findings."""
    found: set[tuple[str, int]] = set()
    for file in RULES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name != "report":
                for call in ast.walk(node):
                    if isinstance(call, ast.Call) and ast.unparse(call.func).endswith((".report", "findings.add")):
                        found.add((file.name, call.lineno))
    return found


def place_of(frame: FrameType | None) -> tuple[str, int]:
    """The place that has called `Findings.add`, through `report` or not."""
    while frame is not None and frame.f_code.co_name == "report":
        frame = frame.f_back
    assert frame is not None
    return Path(frame.f_code.co_filename).name, frame.f_lineno


def agree(wanted: str, level: str, why: str) -> bool:
    """True if a finding is what a row wants: its level and the parts of its text, in order, from the beginning."""
    return re.match(".*".join(re.escape(part) for part in wanted.split(" .. ")), f"{level}: {why}") is not None


def test_each_row_is_found_on_its_line_and_each_place_that_reports_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[tuple[tuple[str, int], int, str, str]] = []
    add = Findings.add

    def noting(self: Findings, node: ast.AST, level: str, why: str) -> None:
        if not self.silent:
            reported.append((place_of(sys._getframe(1)), getattr(node, "lineno", 0), level, why))
        add(self, node, level, why)

    monkeypatch.setattr(Findings, "add", noting)
    reached: set[tuple[str, int]] = set()
    for program, wanted in all_rows():
        reported.clear()
        findings = read_program(HEAD + program)
        line = (HEAD + program).count("\n")
        told = [f"{found.level}: {found.why}" for found in findings if found.line == line]
        assert any(agree(wanted, *text.split(": ", 1)) for text in told), (program, wanted, told)
        reached |= {place for place, at, level, why in reported if at == line and agree(wanted, level, why)}
    assert places() - reached == set()  # each has a row whose text it writes


@pytest.mark.parametrize("network", [SEQUENCE, VOLUME], ids=["sequences", "volumes"])
def test_no_alarm_for_lines_that_mean_the_same_of_sequences_and_volumes(network: str) -> None:
    for line in ("F.relu(y)[0]", "y.size(0)", "y.mean()", "torch.cat([y, y], 0)", "z[:, -1]", "z.mean(1)"):
        assert found(f"{network}        return {line}\n") == []


@pytest.mark.parametrize(
    "expression",
    [
        *("F.pad(y, (0, 0, 1, 1))", "F.celu(y)", "F.rrelu(y)", "F.hardsigmoid(y)", "F.softshrink(y)", "F.dropout2d(y)"),
        *(
            "y.rsqrt()",
            "torch.maximum(y, y)",
            "y.sign()",
            "F.threshold(y, 0, 0)",
            "2 * y - 1",
            "-y",
            "y ** 2",
            "y.half()",
        ),
        *("F.alpha_dropout(y)", "y.contiguous().to(torch.float32)", "torch.where(y > 0, y, 0)", "torch.tanh(y)"),
    ],
)
def test_a_map_is_a_map_behind_what_keeps_its_axes(expression: str) -> None:
    assert len(found(f"{NET}        y = {expression}\n        return y.flip(-1)\n", "change")) >= 1


@pytest.mark.parametrize("line", SAME)
def test_no_alarm_for_lines_that_mean_the_same(line: str) -> None:
    assert found(f"{NET}        {line}\n        return y\n") == []


TRANSFORMER = """class Attention(nn.Module):
    def __init__(self, n, heads):
        super().__init__()
        self.attn = nn.Linear(n, 3 * n)
        self.register_buffer("bias", torch.tril(torch.ones(n, n)).view(1, 1, n, n))
    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.attn(x).split(C, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / k.size(-1))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = (F.softmax(att, dim=-1) @ v).transpose(1, 2).contiguous().view(B, T, C)
        return y.mean(dim=1)
def generate(model, idx):
    logits = model(idx)[:, -1, :]
    return torch.cat((idx, logits.argmax(dim=-1, keepdim=True)), dim=1)
"""
CLASSIFIER = """def test(net, loader):
    correct = total = 0
    for inputs, targets in loader:
        outputs = net(inputs)
        _, predicted = outputs.max(1)
        pred = outputs.argmax(dim=1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
"""


@pytest.mark.parametrize("program", [TRANSFORMER, CLASSIFIER], ids=["transformer", "classifier"])
def test_no_alarm_for_programs_without_axes_of_channels(program: str) -> None:
    assert found(program) == []


# methods that name axes and have rules of their own, or are not looked at
OWN = {"flip", "roll", "rot90", "size", "squeeze", "squeeze_", "unsqueeze", "unsqueeze_", "permute"}
NOT_LOOKED_AT = {"cross", "stride", "tile", "unflatten", "unique_consecutive", "hash_tensor", "narrow_copy"}
NOT_LOOKED_AT |= {"select_scatter", "slice_scatter", "slice_inverse"}


@pytest.mark.torch
def test_the_place_of_an_axis_among_the_arguments_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    places: dict[str, set[int]] = {}
    for name in {*dir(torch.Tensor), *dir(torch)}:
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}") if name[0] != "_" else ():
            arguments = [argument.name for argument in schema.arguments]
            if arguments[:1] == ["self"] and str(schema.arguments[0].type) == "Tensor":
                dims = {i - 1 for i, argument in enumerate(arguments) if argument in ("dim", "dims")}
                dims -= {i - 1 for i, argument in enumerate(schema.arguments) if "str" in str(argument.type)}
                if dims:
                    places.setdefault(name, set()).update(dims)
    assert len(places) > 60
    found = {name: {0} for name in DIM_IS_FIRST} | {name: {1} for name in DIM_IS_SECOND}
    known = places.keys() & found.keys()
    assert {name for name in known if not found[name] & places[name]} == set()
    looked_at = found.keys() | OWN | NOT_LOOKED_AT
    assert {name for name in places if hasattr(torch.Tensor, name) and "unsafe" not in name} - looked_at == set()


SIZES = ["size", "tuple(size)", "list(x.shape[-2:])", "x.size()[-2:]"]


@pytest.mark.parametrize("call", ["F.interpolate(y, {})", "F.interpolate(y, size={})", "F.adaptive_avg_pool2d(y, {})"])
@pytest.mark.parametrize("size", SIZES)
def test_the_size_of_a_map_is_no_end_of_a_shape_whatever_it_is_of(call: str, size: str) -> None:
    """Read it so, too, in torchvision's networks for segmentation, whose backbone is given and not known."""
    lines = f"def f(net, x):\n    size = x.shape[-2:]\n    y = net(x)['out']\n    return {call.format(size)}\n"
    assert found(lines, "change") == ["rows and columns are the axes 1 and 2: write shape[1:3]"]
    assert found(lines.replace("-2", "1").replace(":]", ":3]")) == []


def test_kinds_go_through_classes_and_sequences() -> None:
    lines = """class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Sequential(nn.ConvTranspose2d(8, 8, 2), Act())
    def forward(self, a, b):
        a = self.up(a)
        return torch.cat([b, a], dim=1)
class Act(nn.Module):
    def forward(self, x):
        return F.relu(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = Up()
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8, 2))
    def forward(self, x):
        y = self.up(x, x)
        z = self.head(y)
        return y.softmax(1), z.softmax(1)
"""
    assert [finding.line - HEAD.count("\n") for finding in read_program(HEAD + lines) if finding.level == "change"] == [
        7,
        19,
    ]


def test_names_are_asked_of_alpha_itself() -> None:
    lines = (
        "from torch.utils.data import DataLoader\nfrom torch.optim import Adam, SparseAdam\n"
        "x = torch.fft.fft(torch.ones(3))\ny = torch.ones(3)\nopt = Adam(p, lr=1, no_such=2)\n"
    )
    texts = found(lines, "missing")
    assert [text.split(":")[0] for text in texts] == ["torch.optim.SparseAdam", "torch.fft.fft", "torch.optim.Adam"]
    assert "no argument no_such=" in texts[2]
    assert "numpy.fft" in texts[1]
    imports = found(lines, "import")
    assert imports == ["write from alpha.utils.data import DataLoader", "write from alpha.optim import Adam"]


def test_modules_within_modules_and_methods() -> None:
    lines = (
        "from torch.utils.data.dataset import TensorDataset, no_such\n"
        "from torch.nn.modules.loss import _Loss, L1Loss\n"
        "import torchvision\nimport torch.onnx\nfrom einops import rearrange\n"
        "from einops.layers.torch import Reduce\n"
        "a = torch.nn.modules.pixelshuffle.PixelShuffle(2)\nb = torch.optim.adamax.Adamax\nx.t_()\nx.half()\n"
        "x.add_(1)\nnn.init.xavier_uniform(w)\nmine.resize_as_(x)\ntorch.onnx.export(net, x, 'file')\n"
    )
    imports = found(lines, "import")
    assert [text.replace("write ", "") for text in imports if text.startswith("write")] == [
        "from alpha.utils.data import TensorDataset",
        "from alpha.nn import L1Loss",
        "import alpha.onnx",
        "from alpha.nn.einops import Reduce",
    ]
    assert any("leave it out" in text for text in imports)
    told = found(lines, "missing")
    for why in (
        "no_such",
        "_Loss",
        "write alpha.nn.PixelShuffle",
        "write alpha.optim.Adamax",
        "x = x.t(..)",
        "no half",
    ):
        assert any(why in text for text in told), (why, told)
    assert any("xavier_uniform_ is its name" in text for text in told)
    assert any("no resize_as_" in text for text in told)
    assert len(told) == 8


def test_einops_of_images_and_of_sequences() -> None:
    lines = "from einops import reduce as r\nfrom einops.layers.torch import Rearrange\n"
    assert len(found(f"{lines}def f(x):\n    return r(x, 'b c h w -> b c', 'mean')\n", "change")) == 1
    network = f"""{lines}class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 1), Rearrange("b (h p) w d -> b h w (p d)", p=2))
    def forward(self, x):
        return self.net(x).chunk(2, 1)
"""
    assert found(network) == []  # what a Rearrange gives is not known
    network = f"""{lines}class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(Rearrange("b c (h p) (w p) -> b (h w) (p c)", p=2), nn.Linear(8, 2))
    def forward(self, x):
        return self.net(x).chunk(2, 1), x.shape[-1]
"""
    told = found(network)
    assert len(told) == 2
    assert "has the channels second" in told[0]
    assert "axis -1 of (N, C, H, W)" in told[1]


def test_no_alarm_for_masks_of_labels() -> None:
    lines = """def loss(features, labels):
    mask = torch.eye(len(labels))
    mask = mask.repeat(2, 2)
    logits_mask = torch.scatter(torch.ones_like(mask), 1, labels, 0)
    mask = mask * logits_mask
    return (mask * features).sum(1) / mask.sum(1)
"""
    assert found(lines) == []


def test_weights_that_would_be_downloaded() -> None:
    assert any("give weights=PATH" in text for text in found("net = models.vgg16(pretrained=True)\n"))
    assert not any("PATH" in text for text in found("net = models.vgg16(weights=None)\n"))


def test_the_command_lists_lines_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "net.py"
    file.write_text("import torch\nx = torch.randn(2, 3, 8, 8).flip(-1)\n")
    assert main([str(file)]) == 0
    printed = capsys.readouterr().out
    assert f"{file}:1: import: import torch\n    write import alpha as torch" in printed
    assert f"{file}:2: change: torch.randn(2, 3, 8, 8)" in printed
    assert "1 file: 1 import (another module), " in printed
    assert main([str(tmp_path), "--quiet"]) == 0
    assert "import:" not in capsys.readouterr().out
    assert file.read_text().startswith("import torch\n")
    (tmp_path / "old.py").write_text("print 'x'\n")
    assert main([str(tmp_path / "old.py")]) == 2
    assert "line 1: is no program of Python 3" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty")]) == 2
    assert "empty: there is no program, a file that ends in .py" in capsys.readouterr().err
    with pytest.raises(NotAProgram):
        read_program("x = (")
