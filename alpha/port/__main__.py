"""`python -m alpha.port PROGRAM`: lists by line what a program of PyTorch must change, and why; it changes nothing."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from alpha.errors import ConfigError
from alpha.port.findings import LEVELS
from alpha.port.program import read_program
from alpha.train.commands.command_line import Parser, command, path

DESCRIPTION = (
    "Read a program of PyTorch, and list by line what must change in it, and why; it is neither run nor changed. "
    "Images are (N, H, W, C) in Alpha, so an axis by its number means another one; docs/from_pytorch.md has the table."
)


@command("alpha-port")
def main(arguments: list[str] | None = None) -> int:
    parser = Parser(prog="alpha-port", usage="python -m alpha.port PROGRAM [PROGRAM ...]", description=DESCRIPTION)
    parser.add_argument("files", nargs="+", type=path, metavar="PROGRAM", help="a program, or a folder of programs")
    parser.add_argument("--quiet", action="store_true", help="no imports and no notes")
    args = parser.parse_args(arguments)
    count: Counter[str] = Counter()
    files = [file for given in args.files for file in _programs(given)]
    for file in files:
        for finding in read_program(_text(file), str(file)):
            if args.quiet and finding.level in ("import", "note"):
                continue
            count[finding.level] += 1
            print(f"{file}:{finding.line}: {finding.level}: {finding.code}\n    {finding.why}")
    totals = [f"{count[level]} {level} ({meaning})" for level, meaning in LEVELS.items() if count[level]]
    print(f"{len(files)} {'file' if len(files) == 1 else 'files'}: {', '.join(totals) or 'nothing to change'}")
    return 0


def _programs(given: Path) -> list[Path]:
    """A file, or the programs below a folder."""
    if not given.is_dir():
        return [given]
    found = sorted(given.rglob("*.py"))
    if not found:
        raise ConfigError(f"{given}: there is no program, a file that ends in .py, in this folder")
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
