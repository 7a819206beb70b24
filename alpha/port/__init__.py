"""Help for programs of PyTorch: `python -m alpha.port PROGRAM` lists what must change, `alpha.compare` what differs."""

from alpha.port.findings import Finding as Finding
from alpha.port.layer_by_layer import Comparison as Comparison
from alpha.port.layer_by_layer import Difference as Difference
from alpha.port.layer_by_layer import compare as compare
from alpha.port.program import NotAProgram as NotAProgram
from alpha.port.program import read_program as read_program
