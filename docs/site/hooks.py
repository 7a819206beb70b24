"""Hooks of the site's build: pages that lie elsewhere in the repository, the API from docstrings, and links.

mkdocs calls the functions `on_...`. See mkdocs.yml.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
ELSEWHERE = {  # a page of the site: its file in the repository
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "datasets.md": "datasets/README.md",
}
# an object that several have is on the page of the first one, and the others refer to it
API = (
    "alpha",
    "alpha.nn",
    "alpha.nn.functional",
    "alpha.nn.init",
    "alpha.nn.utils",
    "alpha.nn.utils.rnn",
    "alpha.nn.utils.parametrize",
    "alpha.nn.utils.parametrizations",
    "alpha.optim",
    "alpha.optim.lr_scheduler",
    "alpha.optim.swa_utils",
    "alpha.data",
    "alpha.transforms",
    "alpha.serve",
    "alpha.train",
    "alpha.models",
    "alpha.models.torchvision",
    "alpha.distributed",
    "alpha.distributed.optim",
    "alpha.linalg",
    "alpha.onnx",
    "alpha.amp",
    "alpha.cuda",
    "alpha.cuda.accelerator",
    "alpha.cuda.amp",
    "alpha.errors",
)
# weights of pages among the results of a search: guides are first, then these, then those and the API
INSIDE = ("architecture.md", "benchmarks.md", "contributing.md", "datasets.md", "glossary.md", "scaling.md")
LISTS = ("changelog.md", "coverage.md", "kernels/resources.md")
FIND = "docs/find.md"  # its subjects lead a search to the sections that it names
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
    page.meta["search"] = {
        "boost": 0.4 if here.startswith("api/") or here in LISTS else 0.8 if here in INSIDE or "/" in here else 2
    }
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


@event_priority(-100)  # after the plugin that writes the index
def on_post_build(config: Any) -> None:
    """Give sections the subjects of docs/find.md in the index of the search, which counts them most."""
    path = Path(config.site_dir) / "search" / "search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    entries = {entry["location"]: entry for entry in index["docs"]}
    for place, words in subjects((ROOT / FIND).read_text(encoding="utf-8")):
        if place not in entries:
            raise PluginError(f"{FIND} leads to {place}, which the search does not have")
        entries[place].setdefault("tags", []).extend(words)
    path.write_text(json.dumps(index, separators=(",", ":")), encoding="utf-8")


def subjects(page: str) -> Iterator[tuple[str, list[str]]]:
    """Each row of the table of docs/find.md: the place of its first link in the site, and its words."""
    for words, links in re.findall(r"^\| (.*?) \| (.*) \|$", page, re.MULTILINE):
        if link := LINK.search(links):
            place = link[3].replace(".md", ".html") + (link[4] or "")
            yield place, [word.strip(" `") for word in re.split(r"[,()]", words) if word.strip(" `")]


def _page(name: str) -> str:
    return f"api/{name.removeprefix('alpha.') if name != 'alpha' else 'alpha'}.md"


def public_names(module: ModuleType) -> list[str]:
    """Public names of a module: its `__all__`, or the public ones that are defined in it and below."""
    names: list[str] | None = getattr(module, "__all__", None)
    if names is None:
        inside = re.compile(rf"{re.escape(module.__name__)}(\.|$)")
        names = [n for n in dir(module) if n[0] != "_" and inside.match(getattr(getattr(module, n), "__module__", ""))]
    return [name for name in names if _has_docstring(getattr(module, name))]


def _has_docstring(value: Any) -> bool:
    """True for classes and functions of Alpha; numbers, dtypes and modules have none of their own."""
    return callable(value) and getattr(value, "__module__", "").startswith("alpha") and hasattr(value, "__qualname__")


def members(found: type) -> list[str]:
    """Public methods and properties that a class has besides those of its bases, if they have a docstring."""
    inherited = {name: value for base in reversed(found.__mro__[1:]) for name, value in vars(base).items()}
    return [
        name
        for name, value in vars(found).items()
        if name[0] != "_"
        and isinstance(value, (FunctionType, property, classmethod, staticmethod))
        and inspect.getdoc(value)
        and getattr(value, "__doc__", None) != getattr(inherited.get(name), "__doc__", None)
    ]


def _block(name: str, value: Any) -> str:
    """Markdown that lets mkdocstrings show a function, or a class with its methods."""
    shown = sorted(members(value), key=str.lower) if inspect.isclass(value) else []
    return f"::: {name}\n    options:\n      members: {json.dumps(shown or False)}\n"


def _api_pages() -> Iterator[tuple[str, str]]:
    """The pages of the API with their text."""
    tensor = importlib.import_module("alpha").Tensor
    shown = {id(tensor): TENSOR}
    yield _page(TENSOR), f"# {TENSOR}\n\n{_block(TENSOR, tensor)}"
    for name in API:
        module = importlib.import_module(name)
        about = inspect.cleandoc(module.__doc__ or "").split("\n\n")[0]
        blocks, others = [], []
        for found in sorted(public_names(module), key=lambda name: (name[0].islower(), name.lower())):
            value = getattr(module, found)
            if first := shown.get(id(value)):
                others.append(f"`{found}` is [`{first}`][{first}]")
            else:
                shown[id(value)] = f"{name}.{found}"
                blocks.append(_block(f"{name}.{found}", value))
        also = "## Other names\n\n" + "\n".join(f"- {line}" for line in others) if others else ""
        yield _page(name), "\n\n".join([f"# {name}", about, *blocks, also]) + "\n"
