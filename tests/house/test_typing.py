"""A user's program under mypy --strict: Alpha ships its types, and its methods and functions have them."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import child
import pytest
import tensor_methods

import alpha

pytest.importorskip("mypy")

ROOT = Path(__file__).parents[2]
PROGRAM = """
import numpy as np

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        self.fc = nn.Linear(4, 3)
        self.scale = nn.Parameter(np.ones(3, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc(x)) * self.scale


class Narrow(nn.LeakyReLU):
    width: float  # no argument, for the class is no layer of Alpha's

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.width


class Gap(nn.MSELoss):
    def __init__(self, width: float) -> None:
        super().__init__(reduction="sum")
        self.width = width


class Squares(alpha.data.Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return alpha.tensor([float(index)]), index * index


@alpha.no_grad()
def step(net: Net, lr: float) -> None:
    for p in net.parameters():
        if p.grad is not None:
            p -= lr * p.grad
            p.sub_(p.grad, alpha=lr)
        p.grad = None


@alpha.no_grad()
def losses(net: Net, n: int) -> list[float]:
    return [net(alpha.tensor([[1.0, 2.0, 3.0, 4.0]])).sum().item() for _ in range(n)]


def main() -> None:
    net = Net()
    narrow = Narrow(0.1, inplace=False)
    narrow.width = 2.0 * narrow.negative_slope
    print(narrow, Gap(2.0).reduction, nn.LeakyReLU(0.1), nn.PixelShuffle(2).upscale_factor, nn.Softmax(dim=-1).dim)
    x = alpha.tensor(np.ones((2, 4), np.float32), dtype="float32", device="cpu", requires_grad=True)
    y = net(x)
    loss: Tensor = y.sum() + y.mean(dim=1, keepdim=True).sum(0).mean() - (2 ** y).sum((0, 1)) / 3
    optimizer = alpha.optim.Adam(net.parameters(), 0.1, l1_decay=0.1)
    optimizer.step()
    handle = x.register_hook(lambda g: g * 2.0)
    loss.backward()
    handle.remove()
    step(net, 0.1)
    mask: Tensor = x == 1
    count: Tensor = (mask != (y.flatten(0)[0] > 0.5)).sum()
    print(loss.item(), int(count), bool(loss >= 0), losses(net, 2), x[0].shape, {x: 1}[x])
    z: Tensor = (x.exp().log().sqrt() ** x.pow(2).add(x, alpha=2)).transpose(0, 1) @ x
    loader = alpha.data.DataLoader(Squares(), 2, shuffle=True) if x.ndim else alpha.data.DataLoader([1, 2])
    print(len(loader), [part.dataset for part in alpha.data.random_split(Squares() + Squares(), [0.5, 0.5])])
    print(alpha.exp(alpha.sin(x=x)), F.arcsin(x), F.round(x, decimals=1), alpha.negative(x).exp().sin_())
    print(F.sum(z, 0), F.transpose(z, 0, 1).div(2).mul(3).sub(1).matmul(z).reshape(-1, 1), -z)


main()
"""
WRONG = """
import alpha
from alpha import nn

class Narrow(nn.LeakyReLU):
    width: float

x = alpha.tensor([1.0])
x.mean(axis=0)
x.sum("0")
x.grad = 1.0
x.backwards()
alpha.dates
alpha.sin("0")
alpha.exp(x, 1)
alpha.arctan(y=x)
alpha.optim.AdamW([], decoupled_weight_decay=True)
alpha.optim.SGD([], lr="0.1")
nn.LeakyReLU("x")
nn.LeakyReLU(0.1, slope=0.2)
nn.LeakyReLU(0.1).negative_slope + "x"
nn.Threshold(1.0)
nn.GaussianNLLLoss(True)
Narrow("x", 2.0)
"""


def check(program: str, folder: Path) -> str:
    path = folder / "program.py"
    path.write_text(program)
    # the installed package, as a user has it; from a checkout, the folder that holds it
    environment = child.environment(MYPYPATH=str(Path(alpha.__file__).parents[1]))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache"), str(path)]
    run = child.run(command, env=environment, cwd=folder)
    return run.stdout + run.stderr


@pytest.mark.slow
def test_a_users_program(tmp_path: Path) -> None:
    output = check(PROGRAM, tmp_path)
    assert "Success" in output, output
    exec(compile(PROGRAM, "program", "exec"), {"__name__": "program"})


@pytest.mark.slow
def test_mistakes_are_found(tmp_path: Path) -> None:
    """The types are not all Any."""
    output = check(WRONG, tmp_path)
    for line in range(9, 25):
        assert f"program.py:{line}: error" in output, output


def test_the_types_are_shipped() -> None:
    assert (Path(alpha.__file__).parent / "py.typed").is_file()


def test_the_types_of_tensors_methods_are_those_of_the_functions() -> None:
    written, made = (ast.dump(ast.parse(text)) for text in (tensor_methods.TARGET.read_text(), tensor_methods.source()))
    assert written == made, "run python tests/house/tensor_methods.py"
