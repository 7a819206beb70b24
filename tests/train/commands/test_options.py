"""One-line answers to mistakes on the command line."""

from __future__ import annotations

import sys
import warnings

import pytest

from alpha.errors import DataError, TrainingError
from alpha.train.commands.command_line import Parser, command, natural_int, positive_float, positive_int


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


def test_a_warning_is_one_line_while_a_program_runs_and_as_before_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    form = warnings.formatwarning

    @command("program")
    def main() -> int:
        Parser(prog="program").parse_args([])
        print(warnings.formatwarning("odd", UserWarning, "file.py", 1), end="")
        raise DataError("no such file")

    assert main() == 2
    assert capsys.readouterr().out == "warning: odd\n"
    assert warnings.formatwarning is form


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (None, 7, ""),
        (DataError("no such file"), 2, "program: no such file\n"),
        (TrainingError("not finite"), 2, "program: not finite: try less\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_what_ends_a_program(
    error: BaseException | None, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @command("program", if_diverged="try less")
    def main(number: int, more: int = 0) -> int:
        print("begun")
        if error is not None:
            raise error
        return number + more

    assert main(3, more=4) == status
    said = capsys.readouterr()
    assert (said.out, said.err) == ("begun\n", line)


def test_a_fault_of_a_program_itself_is_raised() -> None:
    """A traceback is what its author needs; the parser's own end is no error."""

    @command("program")
    def main(error: BaseException) -> int:
        raise error

    with pytest.raises(ZeroDivisionError):
        main(ZeroDivisionError())
    with pytest.raises(SystemExit):
        main(SystemExit(0))


def test_an_output_that_is_closed_when_it_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> int:
            return len(text)

        def flush(self) -> None:
            raise BrokenPipeError

        def fileno(self) -> int:
            raise OSError("no file")

    monkeypatch.setattr(sys, "stdout", Closed())
    assert command("program")(lambda: 0)() == 141
