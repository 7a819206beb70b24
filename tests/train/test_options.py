"""One-line answers to mistakes on the command line."""

from __future__ import annotations

import pytest

from alpha.train.commands.command_line import Parser, natural_int, positive_float, positive_int


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "argument --epochs: 0 is not 1 or more"),
        (["--epochs", "-3"], "argument --epochs: -3 is not 1 or more"),
        (["--epochs", "two"], "argument --epochs: 'two' is not a whole number"),
        (["--seed", "-1"], "argument --seed: -1 is not 0 or more"),
        (["--lr", "0"], "argument --lr: 0 is not a finite number above 0"),
        (["--lr", "nan"], "argument --lr: nan is not a finite number above 0"),
        (["--lr", "inf"], "argument --lr: inf is not a finite number above 0"),
        (["--speed", "9"], "unrecognized arguments: --speed 9"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="program")
    parser.add_argument("--epochs", type=positive_int)
    parser.add_argument("--seed", type=natural_int)
    parser.add_argument("--lr", type=positive_float)
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(arguments)
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"program: {message} (--help lists the options)\n"


def test_the_least_that_is_taken() -> None:
    assert (positive_int("1"), natural_int("0"), positive_float("1e-9")) == (1, 0, 1e-9)
