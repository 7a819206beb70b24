"""Names of PyTorch in a program, and whether Alpha has them: asked of Alpha's own modules when the program is read."""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import Any

from alpha.core.names.missing_names import advice
from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.optim.optimizer import Optimizer
from alpha.port.findings import Findings

__all__ = ["Names"]

# the module that takes the place of one of PyTorch's, or an empty text if there is none
MODULES = {
    "torch": "alpha",
    "torch.nn": "alpha.nn",
    "torch.nn.functional": "alpha.nn.functional",
    "torch.nn.init": "alpha.nn.init",
    "torch.nn.utils": "alpha.nn.utils",
    "torch.nn.utils.rnn": "alpha.nn.utils.rnn",
    "torch.nn.parallel": "alpha.nn.parallel",
    "torch.nn.modules": "alpha.nn.modules",
    "torch.optim": "alpha.optim",
    "torch.optim.lr_scheduler": "alpha.optim.lr_scheduler",
    "torch.optim.swa_utils": "alpha.optim.swa_utils",
    "torch.utils": "alpha.utils",
    "torch.utils.data": "alpha.utils.data",
    "torch.utils.checkpoint": "alpha.utils.checkpoint",
    "torch.backends": "alpha.backends",
    "torch.backends.cudnn": "alpha.backends.cudnn",
    "torch.backends.cuda": "alpha.backends.cuda",
    "torch.cuda": "alpha.cuda",
    "torch.cuda.amp": "alpha.cuda.amp",
    "torch.amp": "alpha.amp",
    "torch.linalg": "alpha.linalg",
    "torch.autograd": "alpha.autograd",
    "torch.distributed": "alpha.distributed",
    "torch.onnx": "alpha.onnx",
    "einops.layers.torch": "alpha.nn.einops",
    "torchvision.transforms": "alpha.transforms",
    "torchvision.models": "alpha.models.torchvision",
    "torchvision.datasets": "alpha.data",
}
# parts of PyTorch whose modules Alpha has as one, as torch.nn.modules.linear and torch.utils.data.dataset
WHOLE = {
    "torch.nn.modules": "alpha.nn",
    "torch.nn": "alpha.nn",
    "torch.optim": "alpha.optim",
    "torch.utils.data": "alpha.utils.data",
}
ROOTS = ("torch", "torchvision", "torchaudio", "torchtext")
# methods of PyTorch's tensors, by names that objects of a program hardly have; those with an underscore are told by it
METHODS = {
    *("as_strided", "data_ptr", "untyped_storage", "storage_offset", "record_stream", "index_reduce", "is_pinned"),
    *(
        "to_dense",
        "to_sparse",
        "coalesce",
        "half",
        "masked_scatter",
        "pin_memory",
        "register_post_accumulate_grad_hook",
    ),
}
TORCHVISION = "alpha.transforms, alpha.data and alpha.models.torchvision take the places of its modules"
_PACKAGES = ("torchvision.utils", "torchvision.ops", "torchvision.transforms.functional", "torch.utils.model_zoo")
SAVED = ("weights", "pretrained", "weights_backbone", "progress")  # arguments of torchvision's networks


class Names:
    """The names of PyTorch that a program has imported, and findings about them.

    Args:
        tree: the program.
        findings: to which is added what is missing.
    """

    def __init__(self, tree: ast.Module, findings: Findings) -> None:
        self._findings = findings
        self._known: dict[str, str] = {}  # names of the program: what they are in PyTorch, as "torch.nn.functional"
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._import(node)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        inner: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                part: ast.expr = node.value
                while isinstance(part, ast.Attribute):
                    inner.add(id(part))
                    part = part.value
                self._check(node)
            if isinstance(node, ast.Call):
                self._check_call(node)
                if isinstance(node.func, ast.Attribute) and node.func.attr not in own:
                    self._check_method(node.func)

    def of(self, node: ast.expr) -> str:
        """The name in PyTorch of an expression, as "torch.nn.functional.pad"; empty if it is none of PyTorch's."""
        if isinstance(node, ast.Name):
            return self._known.get(node.id, "")
        if isinstance(node, ast.Attribute) and (owner := self.of(node.value)):
            return f"{owner}.{node.attr}"
        return ""

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name == "einops":
                self._known[alias.asname or alias.name] = "einops"
            if alias.name.split(".")[0] not in ROOTS and alias.name not in MODULES:
                continue
            root = alias.name.split(".")[0]
            self._known[alias.asname or root] = alias.name if alias.asname else root
            known = MODULES.get(alias.name, "")
            if known:
                renamed = alias.asname or ("" if "." in alias.name else root)
                self._findings.add(node, "import", f"write import {known}{f' as {renamed}' if renamed else ''}")
            elif alias.name == "torchvision":
                self._findings.add(node, "import", f"leave it out: {TORCHVISION}")
            else:
                self._findings.add(node, "missing", f"{alias.name}: {_instead(alias.name)}")

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if module == "einops":  # whose functions take tensors of Alpha
            self._known.update({alias.asname or alias.name: f"einops.{alias.name}" for alias in node.names})
        if node.level or (module.split(".")[0] not in ROOTS and module not in MODULES):
            return
        found: dict[str, list[str]] = {}
        for alias in node.names:
            full = f"{module}.{alias.name}"
            if alias.name == "*":
                found.setdefault(MODULES.get(module, ""), []).append("*")
                continue
            self._known[alias.asname or alias.name] = full
            renamed = f" as {alias.asname}" if alias.asname else ""
            if full in MODULES:
                owner, _, last = MODULES[full].rpartition(".")
                other = renamed or (f" as {alias.name}" if last != alias.name else "")
                found.setdefault(owner, []).append(f"{last}{other}")
                continue
            home = MODULES.get(module) or WHOLE.get(module.rpartition(".")[0])
            text = missing(home, alias.name) if home else ""
            if home and text is None:
                found.setdefault(home, []).append(f"{alias.name}{renamed}")
            else:
                why = text if module in MODULES else _instead(full)
                self._findings.add(node, "missing", f"{full}: {why}")
        for owner, imported in found.items():
            self._findings.add(node, "import", f"write from {owner} import {', '.join(imported)}" if owner else "")

    def _check(self, node: ast.Attribute) -> None:
        full = self.of(node)
        if not full:
            return
        parts = full.split(".")
        for count in range(len(parts), 0, -1):
            module = ".".join(parts[:count])
            if module in MODULES:
                rest = parts[count:]
                if rest and (text := missing(MODULES[module], *rest)) is not None:
                    home = WHOLE.get(module) if len(rest) > 1 else None
                    text = f"write {home}.{rest[1]}" if home and missing(home, rest[1]) is None else text
                    self._findings.add(node, "missing", f"{full}: {text}")
                elif rest and module == "torchvision.models" and not rest[0].startswith("__"):
                    self._networks(node, rest[0])
                return
        if len(parts) > 1 and parts[0] in ROOTS:
            self._findings.add(node, "missing", f"{full}: {_instead(full)}")

    def _check_method(self, node: ast.Attribute) -> None:
        """Find methods of PyTorch's tensors that Alpha's do not have."""
        name = node.attr
        known = name in METHODS or (name.endswith("_") and not name.startswith("_"))
        if not known or self.of(node) or any(hasattr(owner, name) for owner in (Tensor, Module, Optimizer)):
            return
        told = advice("Tensor", name)
        if told and "is what Alpha has" not in told:  # which is a function, that may come from another file
            self._findings.add(node, "missing", f"a tensor of Alpha has no {name}: {told}")

    def _networks(self, node: ast.AST, name: str) -> None:
        self._findings.add(
            node,
            "change",
            f"write alpha.models.torchvision.{name}: alpha.models has the paper's networks, with other layers",
        )

    def _check_call(self, node: ast.Call) -> None:
        """Find keyword arguments that Alpha's function does not take."""
        full = self.of(node.func)
        module, _, name = full.rpartition(".")
        if module == "torchvision.models" and missing(MODULES[module], name) is None:
            if isinstance(node.func, ast.Name):
                self._networks(node, name)
            given = [keyword.value for keyword in node.keywords if keyword.arg in SAVED]
            if node.args or any(not (isinstance(value, ast.Constant) and value.value is None) for value in given):
                self._findings.add(node, "change", "Alpha downloads no weights: give weights=PATH of a file")
            return
        if module not in MODULES or missing(MODULES[module], name) is not None:
            return
        target = getattr(importlib.import_module(MODULES[module]), name)
        try:
            known = inspect.signature(target).parameters.values()
        except (TypeError, ValueError):
            return
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known):
            return
        names = {parameter.name for parameter in known} | {"device", "dtype", "input"}
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in names:
                self._findings.add(node, "missing", f"{full}: Alpha's function has no argument {keyword.arg}=")


def missing(module: str, *names: str) -> str | None:
    """Advice for a name that a module of Alpha does not have, empty if there is none; None if the module has it."""
    found: Any = importlib.import_module(module)
    for name in names:
        public = getattr(found, "__all__", ())
        if name not in public and f"{name}_" in public:  # what Alpha has of this name is a helper of its own
            return advice(found.__name__, name)
        try:
            found = getattr(found, name)
        except AttributeError as error:
            return str(error)
    return None


def _instead(full: str) -> str:
    """Advice for a module or a name of a module that Alpha does not have."""
    parts = full.split(".")
    names = [name for name in reversed(parts[1:]) if f"{full.partition(f'.{name}')[0]}.{name}" not in _PACKAGES]
    told = next(filter(None, (advice("alpha", name) for name in names)), "")
    return f"Alpha has none of this name{f': {told}' if told else ''}"
