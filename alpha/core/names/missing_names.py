"""Advice in an AttributeError for a name of PyTorch's that Alpha does not have, or has somewhere else.

Names that would change results, such as `float16` or `set_default_dtype`, are here and not in no_effect.py: a program
that asks for them must not go on with other numbers.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from typing import Any

PARALLEL = "alpha.DataParallel averages gradients over processes, one for each GPU: see docs/distributed.md"
FLOAT16 = (
    "Alpha has no float16, whose range is too small for gradients; alpha.autocast('cuda') or "
    "alpha.set_precision('bf16') computes in bfloat16"
)
IMAGES = (
    "PIL.Image.fromarray(array).save(path) writes an image, of x.numpy() as uint8 (H, W, C); "
    "numpy.concatenate puts several side by side"
)
LOADED = (
    "datasets of alpha.data give uint8 images (H, W, C), batches (N, H, W, C): alpha.nn.functional.normalize_pixels(x) "
    "scales a batch to [-1, 1], and x.float() / 255 to [0, 1]"
)
DECOMPOSED = "Alpha has no decompositions of matrices"
ON_HOST = DECOMPOSED + ": alpha.from_numpy(numpy.linalg.{name}(A.numpy())) computes on the host"
DTYPES = "Alpha computes in float32, float64 and bfloat16, and has bool, uint8, int32 and int64"

# what to do instead of a name of PyTorch's or torchvision's, wherever a program looks for it
INSTEAD = {
    "as_strided": "arrays are contiguous: reshape, permute, unfold and indices make copies of parts",
    "as_strided_": "arrays are contiguous: reshape, permute, unfold and indices make copies of parts",
    "data_ptr": "x.array.address is the address of a tensor on cuda, x.array.ctypes.data that of one on the cpu",
    "datasets": "alpha.data has Cifar10, Cifar100, Mnist and ImageFolder",
    "CIFAR10": "alpha.data.Cifar10 reads it",
    "CIFAR100": "alpha.data.Cifar100 reads it",
    "MNIST": "alpha.data.Mnist reads it",
    "FashionMNIST": "alpha.data.Mnist reads files of its form",
    "DistributedDataParallel": PARALLEL,
    "init_process_group": "alpha.distributed.init() joins the processes of a launcher",
    "destroy_process_group": "alpha.distributed.shutdown() leaves them",
    "get_rank": "alpha.distributed.rank() is it",
    "get_world_size": "alpha.distributed.world_size() is it",
    "get_default_dtype": "it is always float32; dtype= makes another one",
    "set_default_dtype": "the default is always float32; dtype= of a function and model.double() make float64",
    "set_default_tensor_type": "it is always float32 on the cpu; dtype= and device= of a function choose others",
    "set_default_device": "the default is always the cpu; device= of a function and model.to('cuda') choose the GPU",
    "get_default_device": "it is always the cpu; device= of a function chooses the GPU",
    "hub": "alpha.load(path) reads weights of torch.save and of safetensors, alpha.models.torchvision has the networks",
    "jit": "alpha.capture(step) makes a step run without Python in between",
    "set_num_threads": "ALPHA_CPU_THREADS, set before the program starts, is the number of threads",
    "get_num_threads": "ALPHA_CPU_THREADS, set before the program starts, is the number of threads",
    "make_grid": IMAGES,
    "save_image": IMAGES,
    "no_sync": PARALLEL,
    "profiler": "`with alpha.profile() as p:` times a step by layer and kernel, p.save_trace(path) is for Perfetto",
    "set_printoptions": "print(x.numpy()) prints as numpy.set_printoptions says",
    "tensorboard": "the writers of tensorboard and tensorboardX take loss.item()",
    "ToTensor": LOADED,
    "ToPILImage": "PIL.Image.fromarray(array) takes uint8 (H, W, C)",
    "PILToTensor": LOADED,
    "ConvertImageDtype": LOADED,
    "ToImage": LOADED,
    "ToDtype": LOADED,
    "v2": "the transforms of alpha.transforms change a batch on the device, and have one form",
    "resize_": "a tensor keeps its size: assign alpha.empty(size) to its name",
    "set_": "a tensor keeps its memory: x.copy_(y) writes the values, x.data = y takes other memory",
    "share_memory_": "x.numpy() goes to another process",
    "untyped_storage": "x.array is the array of a tensor, x.nbytes its bytes",
    "storage": "x.array is the array of a tensor, x.nbytes its bytes",
    "to_dense": "every tensor is dense",
    "vmap": "operators take axes in front, or write a loop and alpha.stack",
    "functional_call": "model.load_state_dict(weights) before model(x); a copy.deepcopy(model) keeps the others",
    "stateless": "model.load_state_dict(weights) before model(x); a copy.deepcopy(model) keeps the others",
    "distributions": "log_softmax and gather give log-probabilities, alpha.multinomial, bernoulli and randn draw",
    "special": "scipy.special computes its functions of x.numpy(), without a gradient",
    "newaxis": "None is it",
    "mode": "scipy.stats.mode(x.numpy()) computes it on the host",
    "prune": "a module of alpha.nn.utils.parametrize.register_parametrization multiplies a weight by a mask",
    "once_differentiable": "there are no second derivatives, so that a backward needs no decorator",
    "register_post_accumulate_grad_hook": "x.register_hook sees the gradient of each pass",
    "testing": "numpy.testing.assert_allclose(x.numpy(), y.numpy()) compares",
    "multiprocessing": "Python's multiprocessing takes arrays, x.numpy(), and state dicts",
    "_Loss": "nn.Module is the base of every loss",
    "version": "alpha.__version__ is that of Alpha, alpha-doctor prints those of CUDA and the packages",
    "func": "alpha.grad gives gradients; there are no second derivatives",
    "gradcheck": "compare alpha.grad in float64 with differences (f(x + h) - f(x - h)) / 2h",
    "set_detect_anomaly": "alpha.nn.utils.clip_grad_norm_(.., error_if_nonfinite=True) finds NaN and infinity",
    "detect_anomaly": "alpha.nn.utils.clip_grad_norm_(.., error_if_nonfinite=True) finds NaN and infinity",
    "current_stream": "all work of the GPU is in one order, so there are no streams to choose",
    "Stream": "all work of the GPU is in one order, so there are no streams to choose",
    "stream": "all work of the GPU is in one order, so there are no streams to choose",
    "CUDAGraph": "alpha.capture(step) makes a CUDA graph of a step",
    "graph": "alpha.capture(step) makes a CUDA graph of a step",
    "make_graphed_callables": "alpha.capture(step) makes a CUDA graph of a step",
    "set_device": "the environment variable CUDA_VISIBLE_DEVICES chooses the GPU",
    "SparseAdam": "gradients are dense, so alpha.optim.Adam takes its place",
    "Container": "nn.Module is the base of every part",
    "CrossMapLRN2d": "alpha.nn.LocalResponseNorm computes it",
    "LinearCrossEntropyLoss": "alpha.nn.Linear and alpha.nn.CrossEntropyLoss compute it",
    "linear_cross_entropy": "alpha.nn.functional.linear and cross_entropy compute it",
    "NLLLoss2d": "alpha.nn.NLLLoss takes any number of axes, the classes last",
    "RNNBase": "alpha.nn.RNN, LSTM and GRU have no common base",
    "RNNCellBase": "alpha.nn.RNNCell, LSTMCell and GRUCell have no common base",
    "parameter": "alpha.nn.Parameter and Buffer stand in alpha.nn",
    "conv_tbc": "alpha.nn.functional.conv1d computes it, with channels last",
    "grouped_mm": "alpha.matmul of a batch computes it",
    "scaled_mm": "alpha.matmul in bfloat16 is the nearest",
    "scaled_grouped_mm": "alpha.matmul in bfloat16 is the nearest",
    "LinAlgError": "Alpha raises ShapeError and ValueError",
    "custom_fwd": "a Function of your own has the precision of its inputs, without a decorator",
    "custom_bwd": "a Function of your own has the precision of its inputs, without a decorator",
    "default_convert": "alpha.data.default_collate makes batches, alpha.as_tensor a tensor",
    "IterDataPipe": "alpha.data.IterableDataset is its base",
    "MapDataPipe": "alpha.data.Dataset is its base",
    "get_device_properties": "alpha.cuda has get_device_name, get_device_capability and mem_get_info",
    "max_memory_reserved": "alpha.cuda.max_memory_allocated counts arrays, memory_reserved what is held now",
    "memory_summary": "print(alpha.memory_stats('cuda')) has all counts",
    "is_bf16_supported": "alpha.set_precision('bf16') works on every GPU; tensor cores need compute capability (8, 0)",
    "is_pinned": "copies to the GPU go through pinned memory of Alpha's own",
    "storage_offset": "arrays are contiguous, so that only x.array knows where they begin",
    "record_stream": "all work of the GPU is in one order, so there are no streams",
    "apply_": "alpha.from_numpy(numpy.vectorize(f)(x.numpy())) computes on the host",
    "map_": "alpha.from_numpy(numpy.vectorize(f)(x.numpy(), y.numpy())) computes on the host",
    "new": "x.new_empty(size), or x.new_tensor(data)",
    "clip_grad_norm": "alpha.nn.utils.clip_grad_norm_ is its name",
    "register_backward_hook": "register_full_backward_hook is its name",
    "to_empty": "model.to(device), which keeps the values",
    "share_memory": "processes share no parameters: send model.state_dict()",
    "get_extra_state": "a Buffer keeps more than parameters",
    "set_extra_state": "a Buffer keeps more than parameters",
    "set_submodule": "setattr(parent, name, module), where parent is get_submodule of what is before the last dot",
    "poisson": "alpha.from_numpy(generator.poisson(rate.numpy())) draws on the host",
    "histogram": "alpha.histc counts, alpha.linspace gives the borders",
    "gradient": "differences of slices, (x[2:] - x[:-2]) / 2, are gradients",
    "frombuffer": "alpha.from_numpy(numpy.frombuffer(buffer, dtype)) reads it",
    "range": "alpha.arange, whose end does not belong to it, takes its place",
    "initial_seed": "alpha.get_rng_state() tells where the random numbers are",
    "seed": "alpha.manual_seed(number) makes random numbers repeatable",
    "Size": "a shape is a tuple",
    "dtype": "a dtype is numpy.dtype; alpha.is_floating_point(x) asks a tensor",
    "layout": "every tensor is dense and contiguous",
    "index_reduce_": "x.scatter_reduce_ reduces at indices",
    "index_reduce": "x.scatter_reduce reduces at indices",
    "put_": "x.view(-1)[indices] = values writes at places of the flat tensor",
    "resize_as_": "a tensor keeps its size: assign alpha.empty_like(other) to its name",
    "grid_sampler": "alpha.nn.functional.grid_sample computes it",
}

# the same for a name of one module alone, where the name means something else elsewhere
INSTEAD_IN = {
    "alpha.random": "alpha.manual_seed, get_rng_state and set_rng_state are there",
    "alpha.autograd.functional": "alpha.grad gives the gradients of one number; there are no second derivatives",
    "alpha.autograd.graph": "alpha.checkpoint keeps less for the backward pass, x.register_hook sees gradients",
    "alpha.nn.DataParallel": PARALLEL,
    "alpha.nn.modules.utils": "a pair is (x, x)",
    "alpha.nn.utils.parametrizations.orthogonal": "alpha.nn.init.orthogonal_ draws an orthogonal matrix once",
}

# the same for families of names, each a pattern of whole names; {name} stands for the name
FAMILIES = [
    (r"float16|half|HalfTensor|HalfStorage|cfloat|chalf", FLOAT16),
    (r"u?int([1-8]|16|32|64)|short|char|(Char|Short)Tensor|float[48]_\w+|bits\w+", DTYPES),
    (
        r"complex\w*|cdouble|view_as_(real|complex)|angle|(is_|resolve_)?conj\w*|real|imag|polar|m?H",
        "Alpha has no complex numbers: numpy computes with x.numpy()",
    ),
    (r"fft|i?stft", "Alpha has no Fourier transforms: numpy.fft computes with x.numpy()"),
    (r"\w*sparse\w*|coalesce|s?spmm|sspaddmm|hspmm|(c?col|crow|row)_indices", "every tensor of Alpha is dense"),
    (r"q(int|uint)\w*|quant\w*|dequantize|fake_quant\w*|qat|q_\w+|qscheme|ao", "Alpha has no quantized numbers"),
    (
        r"eigh?|eigvalsh?|svd(vals)?|qr|cholesky|inv|pinv|det|slogdet|solve|lstsq|matrix_rank|cond|tensor(inv|solve)",
        ON_HOST,
    ),
    (
        r"(inv|cholesky|lu|ldl|solve)_\w+|lu|lobpcg|geqrf|orgqr|ormqr|pinverse|inverse|logdet|symeig|matrix_exp"
        r"|householder_product|triangular_solve|nuclear_norm|(svd|pca)_lowrank",
        DECOMPOSED + ": scipy.linalg computes with A.numpy()",
    ),
    (
        r"(lgamma|digamma|polygamma|mvlgamma|igammac?|erfinv|i0|multigammaln)_?",
        "scipy.special computes it of x.numpy(), without a gradient",
    ),
    (r"\w+_copy", "without _copy it has the same values; parts of tensors are copies"),
    (r"(cudnn|miopen|mkldnn|native|fbgemm)_\w+", "alpha.nn.functional has the operator without the library's name"),
    (r"\w+_with_indices", "return_indices=True of the function without _with_indices gives them"),
    (r"\w*autocast\w*", "alpha.autocast is the context, alpha.get_precision() tells what holds"),
    (r"unsafe_\w+", "the function without unsafe_ computes it"),
    (r"register_\w*state_dict\w*_hook", "a subclass's state_dict and load_state_dict change what is kept"),
    (r"mps|xpu|mtia|ipu|vulkan", "the devices are 'cpu' and 'cuda'"),
]

# where a name may stand in Alpha, the usual places first
_PLACES = (
    *("alpha", "alpha.nn", "alpha.nn.functional", "alpha.data", "alpha.optim", "alpha.optim.lr_scheduler"),
    *("alpha.models", "alpha.models.torchvision", "alpha.transforms", "alpha.nn.utils", "alpha.nn.init"),
    *("alpha.optim.swa_utils", "alpha.linalg", "alpha.cuda", "alpha.amp", "alpha.train"),
)


class MissingName(AttributeError):
    """A name that an object or a module has not; its text, which is made when it is read, says what to do instead."""

    def __init__(self, owner: str, name: str, obj: Any = None) -> None:
        super().__init__(name=name, obj=obj)
        self._owner, self._missing = owner, name

    def __str__(self) -> str:
        told = advice(self._owner, self._missing)
        is_module = self._owner.split(".")[0] == "alpha"
        owner = f"module {self._owner!r}" if is_module else f"{self._owner!r} object"
        return f"{owner} has no attribute {self._missing!r}" + (f": {told}" if told else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return MissingName, (self._owner, self._missing)


def advice(owner: str, name: str) -> str:
    """Advice for a name of PyTorch's that `owner` does not have: what to use instead; empty if nothing is known."""
    if name.startswith("__"):
        return ""
    told = INSTEAD_IN.get(f"{owner}.{name}") or INSTEAD.get(name)
    if told:
        return told
    for pattern, text in FAMILIES:
        if re.fullmatch(pattern, name):
            return text.format(name=name)
    if f"{name}_" in getattr(sys.modules.get(owner), "__all__", ()):
        return f"{owner}.{name}_ is its name, and writes its tensor in place"
    if place := _place_of(owner, name):
        return f"{place}.{name} is what Alpha has"
    without = name.rstrip("_")
    if owner == "Tensor" and without != name and _place_of("", without):
        return f"x = x.{without}(..) takes its place"
    return ""


def _place_of(owner: str, name: str) -> str:
    """The module of Alpha that offers this name."""
    for place in _PLACES:
        if place != owner and name in getattr(importlib.import_module(place), "__all__", ()):
            return place
    return ""


def tell_instead(module: str, later: Mapping[str, str] | None = None) -> None:
    """Let the errors of a module, by its `__name__`, say what to do instead of a name that it has not.

    `dir` of a module that has `__all__` then lists the names in it, and those of `later`.

    Args:
        later: names that it has, which are loaded when they are first asked for, each from the module that has it.
    """
    target, known = sys.modules[module], later or {}

    def __getattr__(name: str) -> Any:
        if name in known:
            found = importlib.import_module(known[name])
            return found if found.__name__ == f"{module}.{name}" else getattr(found, name)
        raise MissingName(module, name, target)

    def __dir__() -> list[str]:
        public = vars(target).get("__all__")
        return sorted(vars(target) if public is None else {*public, *known})

    vars(target)["__dir__"] = __dir__  # public names alone, where the module says which these are
    vars(target)["__getattr__"] = __getattr__  # a type checker would take a function of this name for every attribute
