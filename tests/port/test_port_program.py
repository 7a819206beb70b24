"""`python -m alpha.port`: what it finds in programs of PyTorch, and in what it finds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from alpha.port import read_program
from alpha.port.__main__ import main
from alpha.port.program import NotAProgram

HEAD = (
    "import numpy as np\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
    "from torchvision import models\n"
)
NET = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(8, 2)
    def forward(self, x):
        y = self.conv(x)
"""


def found(lines: str, *levels: str) -> list[str]:
    """The reasons for changes in a program of these lines behind its imports."""
    findings = read_program(HEAD + lines)
    wanted = levels or ("change", "look")
    return [finding.why for finding in findings if finding.level in wanted and finding.line > HEAD.count("\n")]


# each runs in Alpha, and means something else there
SILENT = {
    "flip(-1)": ("def f(x):\n    return x.flip(-1)\n", "exchanges other axes: write 2"),
    "torch.flip": ("def f(x):\n    return torch.flip(x, dims=[3])\n", "write 2"),
    "Gram": ("def f(x):\n    b, c, h, w = x.size()\n    return x.view(b, c, h * w)\n", "mixes channels and pixels"),
    "Gram of four names": ("def f(x):\n    a, b, c, d = x.size()\n    return x.view(a * b, c * d)\n", "mixes channels"),
    "Cutout": (
        "class Cutout:\n    def __call__(self, img):\n        h = img.size(1)\n        w = img.size(2)\n",
        "axis 0",
    ),
    "Cutout by shape": ("def f(img):\n    h, w = img.shape[1], img.shape[2]\n", "axis 0"),
    "softmax of a map": ("def f(net, x):\n    return F.softmax(net(x), dim=1)\n", "is the channels: write -1"),
    "argmax of a map": ("def f(net, x):\n    return net(x).argmax(1)\n", "is the channels: write -1"),
    "weight.shape[2:]": ("def f(weight):\n    return weight.shape[2:]\n", "write shape[1:3]"),
    "conv.weight.size(2)": ("def f(conv):\n    return conv.weight.size(2)\n", "write axis 1"),
    "F.pad": ("def f(x):\n    return F.pad(x, (1, 1, 1, 1))\n", "four numbers pad the last two axes"),
    "sums of channels": ("def f(x):\n    return x.mean(dim=[0, 2, 3])\n", "write (0, 1, 2)"),
    "colours": ("def f(images):\n    return images[:, [2, 1, 0]]\n", "write [..., channels]"),
    "F.pad of a list": ("def f(x, p):\n    return nn.functional.pad(x, [p] * 4)\n", "four numbers pad"),
    "pad of a variable": ("def f(x, p):\n    pad = (p,) * 4\n    return F.pad(x, pad)\n", "four numbers pad"),
    "mirrored by an index": ("def f(images, i):\n    return images[:, :, :, i]\n", "write [:, rows, columns]"),
    "channels of a dataset": ("def f(mnist):\n    return mnist.data.unsqueeze(1)\n", "write unsqueeze(-1)"),
    "shuffled groups": (
        "def f(x, g, c, h, w):\n    y = x.view(4, g, c, h, w)\n    return y.transpose(1, 2).contiguous()\n",
        "write transpose(3, 4)",
    ),
    "Gram by einsum": ("def f(y):\n    return torch.einsum('nchw, ndhw -> ncd', y, y)\n", "write 'nhwc'"),
    "einsum of sequences": ("def f(y, w):\n    return torch.einsum('bct,ck->bkt', y, w)\n", "write 'btc'"),
    "sides of a picture": ("def f(image):\n    _, h, w = image.shape\n", "write h, w, c"),
    "Cutout by slices": ("def f(image):\n    h, w = image.size()[1:]\n", "write shape[:2]"),
    "Cutout in place": (
        "def f(image, y, x):\n    image[:, y : y + 8, x : x + 8] = 0\n",
        "write [rows, columns, channels]",
    ),
    "taps of a filter": ("def f(m):\n    return m.weight[0][0].numel()\n", "write weight[out, :, :, in]"),
    "names of a filter": ("def f(m):\n    o, i, h, w = m.weight.shape\n", "write out, h, w, in"),
    "channels of a filter": ("def f(conv1):\n    return conv1.weight.size(1)\n", "write axis -1"),
    "best of a map": ("def f(net, images):\n    return net(images).max(1)[1]\n", "is the channels"),
    "resnet18": ("net = models.resnet18()\n", "write alpha.models.torchvision.resnet18"),
}
# expressions of y, which is a map
OF_MAPS = [
    *("torch.cat([y, y], 1)", "y.chunk(2, dim=1)", "y.mean(1)", "y.max(1)", "F.normalize(y)", "y.sum((2, 3))"),
    *("y.shape[-2:]", "y.size(3)", "y[:, :3]", "y[:, 0]", "y[:, :, 1:, 1:]", "y[..., ::2, ::2]", "y.squeeze(1)"),
    *("y.permute(0, 2, 3, 1)", "y.flatten(2).transpose(1, 2)", "y.transpose(2, 3)", "y.view(len(y), 8, -1)"),
    *("y * self.b.view(1, -1, 1, 1)", "y * s[:, :, None, None]", "y + s.unsqueeze(2).unsqueeze(3)"),
    *("F.pad(y, (1, 1))", "F.log_softmax(y, 1)", "F.cosine_similarity(y, y)", "y.view(4, 2, 4, 6, 6)", "y.flip(1)"),
    *("y.expand(4, channels, -1, -1)", "torch.randn(4, 3, 32, 32)", "torch.zeros(1, dim, 1, 1)", "y.shape[1]"),
    *("nn.Softmax(dim=1)(y)", "nn.LogSoftmax(1)(y)", "nn.Sequential(self.conv, nn.Softmax(1))(x)", "nn.GLU(1)(y)"),
    *("np.argmax(y.detach().numpy(), axis=1)", "np.concatenate([y, y], 1)[:, :3]", "torch.einsum('bchw->bc', y)"),
    *("F.interpolate(y, size=x.shape[2:])", "y.mean(-1).mean(-1)", "y.argmax(dim=1, keepdim=True)"),
]
# lines that mean the same in Alpha
SAME = [
    *("y = torch.cat([y, y], 0)", "n = y.size(0)", "y = F.relu(y).pow(2)[0]"),
    *("s = nn.Softmax(dim=1)(self.fc(y))", "z = np.argmax(s, axis=1)", "y[0] = 0"),
    *("z = torch.einsum('bnd,bmd->bnm', q, k)", "z = self.fc.weight.size(1)", "z[:, 1:3, 2:4] = 0"),
    *("y = F.interpolate(y, scale_factor=2)", "y = F.max_pool2d(y, 2) + self.conv(x)", "z = s.argmax(-1)"),
]


@pytest.mark.parametrize("name", SILENT)
def test_lines_that_would_run_and_mean_something_else(name: str) -> None:
    lines, why = SILENT[name]
    assert any(why in text for text in found(lines)), found(lines)


SEQUENCE = NET.replace("Conv2d", "Conv1d")
VOLUME = NET.replace("Conv2d", "Conv3d")
# expressions of y (N, C, L), and what to write
OF_SEQUENCES = {
    "y[:, :, :-3]": "[:, positions]",
    "y[:, 0]": "[..., channels]",
    "y[..., -1]": "[:, positions]",
    "y.mean(2)": "write 1",
    "y.amax(-1)": "write 1",
    "y.softmax(1)": "write -1",
    "torch.cat([y, x], 1)": "write -1",
    "y.transpose(1, 2)": "leave it out",
    "self.fc(y.permute(0, 2, 1))": "leave it out",
    "y.size(2)": "axis 1",
    "y.shape[1]": "axis -1",
    "y.flip(-1)": "write 1",
    "F.pad(y, (2, 0))": "(0, 0) if they are not padded",
    "y.squeeze(2)": "squeeze(1)",
    "F.max_pool1d(y, 2)[:, :, 0]": "[:, positions]",
    "self.conv(z.transpose(1, 2))": "stays (N, L, C)",
    "self.tcn(z.transpose(1, 2)).transpose(1, 2)": "leave both out",
}
OF_VOLUMES = {
    "y.mean((2, 3, 4))": "write (1, 2, 3)",
    "y[:, :, 0]": "[:, slices",
    "y.chunk(2, 1)": "write -1",
    "y.size(4)": "axis 3",
    "y.flip(2)": "write 1",
    "F.avg_pool3d(y, 2).shape[-1]": "axis 3",
    "torch.randn(1, 3, 4, 8, 8)": "(n, d, h, w, c)",
}


@pytest.mark.parametrize("network", [SEQUENCE, VOLUME], ids=["sequences", "volumes"])
def test_lines_about_the_axes_of_sequences_and_volumes(network: str) -> None:
    for expression, why in (OF_SEQUENCES if network is SEQUENCE else OF_VOLUMES).items():
        told = found(f"{network}        return {expression}\n")
        assert any(why in text for text in told), (expression, told)
    for line in ("F.relu(y)[0]", "y.size(0)", "y.mean()", "torch.cat([y, y], 0)", "z[:, -1]", "z.mean(1)"):
        assert found(f"{network}        return {line}\n") == []


def test_what_a_file_tells_of_tensors_that_come_from_another_one() -> None:
    cases = {
        "def f(net, x):\n    y = net(x)\n    return y[:, :, -1]\n": "positions",
        "def f(data):\n    return data.view(-1, input_channels, seq_length)\n": "view(n, l, c)",
        "def f(x):\n    b, c, t = x.shape\n": "n, l, c = x.shape",
        "def f(a, b):\n    dims = (-1, -2)\n    return a.flatten(0, 1)\n": "movedim(-1, 1)",
        "def f(x, s):\n    c = int(x.size(1) * s)\n    return x[:, :c, :, :]\n": "write axis -1",
        "def f(x, p):\n    return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, p, p))\n": "channels first",
        "def f(mask, images):\n    return images * mask.expand_as(images)\n": "unsqueeze(-1)",
    }
    for lines, why in cases.items():
        assert any(why in text for text in found(lines)), (lines, found(lines))


@pytest.mark.parametrize("expression", OF_MAPS)
def test_lines_about_the_axes_of_a_map(expression: str) -> None:
    assert len(found(f"{NET}        return {expression}\n", "change")) >= 1


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


def test_a_view_behind_a_map_is_a_note_about_weights() -> None:
    for line in ("y.view(y.size(0), -1)", "torch.flatten(y, 1)", "y.flatten(1)"):
        assert any("find_flattened" in text for text in found(f"{NET}        return self.fc({line})\n", "note"))


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
    with pytest.raises(NotAProgram):
        read_program("x = (")
