"""Nothing uses what numpy has removed or deprecated between 1.26 and 2.5, so that all these versions work silently."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = """
    alltrue asfarray asscalar bool8 byte_bounds bytes0 cast cfloat chararray clongfloat compare_chararrays compat
    complex_ core cumproduct DataSource deprecate deprecate_with_doc disp fastCopyAndTranspose find_common_type fix
    float_ format_parser geterrobj in1d Inf Infinity infty int0 issctype issubclass_ issubsctype longcomplex longfloat
    lookfor maximum_sctype msort NaN nbytes NINF NZERO obj2sctype object0 PINF product PZERO recfromcsv recfromtxt
    round_ row_stack safe_eval sctype2char sctypes set_numeric_ops set_string_function seterrobj singlecomplex
    sometrue source str0 string_ tracemalloc_domain trapz typename uint0 unicode_ void0 who
"""
GONE = set(NAMES.split())  # from the release notes of numpy 1.25 to 2.5
GONE_KEYWORDS = {"fix_imports", "interpolation", "newshape"}
GONE_METHODS = {"itemset", "tostring"}
MENTIONED = re.compile(rf"\b({'|'.join([*GONE, *GONE_KEYWORDS, *GONE_METHODS, 'copy *= *False'])})\b|numpy.*\.core")


def found_in(path: Path) -> list[str]:
    wrong = []
    source = path.read_text()
    for node in ast.walk(ast.parse(source)) if MENTIONED.search(source) else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy"):
            if node.attr in GONE:
                wrong.append(f"np.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numpy":
            wrong += [name.name for name in node.names if name.name in GONE or ".core" in f".{node.module}"]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            of_numpy = isinstance(owner, ast.Name) and owner.id in ("np", "numpy")
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            copy = keywords.get("copy")
            if of_numpy and node.func.attr == "array" and isinstance(copy, ast.Constant) and copy.value is False:
                wrong.append("np.array(.., copy=False), which numpy 2 refuses if it must copy: np.asarray")
            wrong += [name for name in GONE_KEYWORDS if of_numpy and name in keywords]
            wrong += [node.func.attr] if node.func.attr in GONE_METHODS else []
    return [f"{path.relative_to(ROOT)}: {what}" for what in wrong]


def test_no_name_that_numpy_has_given_up() -> None:
    paths = [path for folder in ("alpha", "examples", "tests", "datasets") for path in ROOT.glob(f"{folder}/**/*.py")]
    assert len(paths) > 500
    assert [what for path in sorted(paths) for what in found_in(path)] == []
