"""Hooks of the site's build: pages that lie elsewhere in the repository, the API from docstrings, and links.

mkdocs calls the functions `on_...`. See mkdocs.yml.
"""

from __future__ import annotations

import importlib
import inspect
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
ELSEWHERE = {  # a page of the site: its file in the repository
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "datasets.md": "datasets/README.md",
}
API = (  # an object that several have is on the page of the first one, and the others refer to it
    *("alpha", "alpha.nn", "alpha.nn.functional", "alpha.nn.init", "alpha.nn.utils", "alpha.nn.utils.rnn"),
    *("alpha.nn.utils.parametrize", "alpha.optim", "alpha.optim.lr_scheduler", "alpha.optim.swa_utils"),
    *("alpha.data", "alpha.transforms", "alpha.train", "alpha.models", "alpha.models.torchvision"),
    *("alpha.distributed", "alpha.distributed.optim", "alpha.linalg", "alpha.amp", "alpha.cuda", "alpha.backends"),
    *("alpha.errors",),
)
TENSOR = "alpha.Tensor"  # its methods have a page of their own
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Put the pages of the API into the navigation, at the entry `API: api`."""
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    pages: list[Any] = [{"Tensor": _page(TENSOR)}, *({name: _page(name)} for name in API)]
    config.nav = [{"API": pages} if entry == {"API": "api"} else entry for entry in config.nav]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that do not lie in docs/, and those of the API."""
    for page, source in ELSEWHERE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for page, text in _api_pages():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to pages of the site. A link to a source file becomes its text, for the site has no sources."""
    here = page.file.src_uri
    folder = posixpath.dirname(ELSEWHERE.get(here, f"docs/{here}"))
    places = {source: name for name, source in ELSEWHERE.items()}

    def led(found: re.Match[str]) -> str:
        picture, text, target, anchor = found.groups(default="")
        path = posixpath.normpath(posixpath.join(folder, target))
        place = places.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if place is None:
            return str(text)
        return f"{picture}[{text}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{anchor})"

    parts = re.split(r"(^```.*?^```$|`[^`\n]*`)", markdown, flags=re.DOTALL | re.MULTILINE)
    if any(LINK.search(part) for part in parts[1::2]):  # code that looks like a link stays
        return "".join(part if number % 2 else LINK.sub(led, part) for number, part in enumerate(parts))
    return LINK.sub(led, markdown)


def _page(name: str) -> str:
    return f"api/{name.removeprefix('alpha.') if name != 'alpha' else 'alpha'}.md"


def public_names(module: ModuleType) -> list[str]:
    """Public names of a module: its `__all__`, or what it defines or takes from Alpha if it has none."""
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    return [name for name in names if _is_documented(getattr(module, name))]


def _is_documented(value: Any) -> bool:
    """True for classes and functions of Alpha; numbers, dtypes and modules have no docstring of their own."""
    return callable(value) and getattr(value, "__module__", "").startswith("alpha") and hasattr(value, "__qualname__")


def _api_pages() -> Iterator[tuple[str, str]]:
    shown: dict[int, str] = {}
    options = "    options:\n      members: false\n"
    yield _page(TENSOR), f"# alpha.Tensor\n\n::: {TENSOR}\n    options:\n      heading_level: 2\n      members: true\n"
    for name in API:
        module = importlib.import_module(name)
        about = inspect.cleandoc(module.__doc__ or "").split("\n\n")[0]
        blocks, others = [], []
        for found in sorted(public_names(module), key=lambda name: (name[0].islower(), name.lower())):
            value = getattr(module, found)
            if f"{name}.{found}" == TENSOR:
                others.append(f"`{found}`: see [`{TENSOR}`](Tensor.md)")
            elif first := shown.get(id(value)):
                others.append(f"`{found}` is [`{first}`][{first}]")
            else:
                shown[id(value)] = f"{name}.{found}"
                blocks.append(f"::: {name}.{found}\n" + ("" if inspect.isclass(value) else options))
        also = "## Other names\n\n" + "\n".join(f"- {line}" for line in others) if others else ""
        yield _page(name), "\n\n".join([f"# {name}", about, *blocks, also]) + "\n"
