"""Shares of parameters: which rank updates a parameter, where the state of an optimizer is shared out over ranks.

`alpha.distributed.optim` enters them. Those that reduce gradients, or read them, ask for them here: the gradient of a
parameter goes to its owner alone, and on the other ranks `.grad` is None behind a backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from alpha.errors import GradientError
from alpha.runtime import recording

if TYPE_CHECKING:
    from alpha.core.tensor import Tensor


class Share(NamedTuple):
    """A parameter, the optimizer that updates it, its number there, and the rank that does it; neither is held."""

    leaf: ref[Tensor]
    optimizer: ref[Any]
    owner: int
    number: int


_shares: dict[int, Share] = {}  # by the id of a parameter
_reduced: set[int] = set()  # ids of parameters whose `.grad`, if there is one, is that of all ranks


def give(leaf: Tensor, owner: int, optimizer: Any, number: int) -> None:
    """Give a parameter to a rank, in place of the one before, as long as the parameter and the optimizer live."""
    forget = partial(_forget, id(leaf))
    _shares[id(leaf)] = Share(ref(leaf, forget), ref(optimizer, forget), owner, number)
    _reduced.discard(id(leaf))


def _forget(number: int, gone: ref[Any]) -> None:
    share = _shares.get(number)
    if share is not None and (gone is share.leaf or gone is share.optimizer):
        del _shares[number]
        _reduced.discard(number)


def forget_all() -> None:
    """Forget all shares, when a process leaves its group."""
    _shares.clear()
    _reduced.clear()


def share_of(leaf: Tensor) -> Share | None:
    """The share of which a parameter is; None if each rank updates it."""
    return _shares.get(id(leaf)) if _shares else None


def any_shares() -> bool:
    """True if some parameters are shared out."""
    return bool(_shares)


def shared_leaves() -> Iterator[tuple[Tensor, Share]]:
    """All parameters that are shared out."""
    for share in list(_shares.values()):
        if (leaf := share.leaf()) is not None:
            yield leaf, share


# -- what the gradients are of ---------------------------------------------------------------------


def is_reduced(leaf: Tensor) -> bool:
    """True if the gradient of a parameter, if it has one, is that of all ranks, and not of this one alone."""
    return id(leaf) in _reduced


def mark_reduced(leaves: Iterable[Tensor], reduced: bool) -> None:
    """Note of which ranks the gradients of some parameters are from here on; a replay of a step notes it again."""
    numbers = frozenset(map(id, leaves))
    if not numbers:
        return

    def mark() -> None:
        if reduced:
            _reduced.update(numbers)
        else:
            _reduced.difference_update(numbers)

    def keep() -> Callable[[], None]:
        before = _reduced & numbers

        def restore() -> None:
            _reduced.difference_update(numbers)
            _reduced.update(before)

        return restore

    mark()
    recording.again(mark, keep)


def expect_reduced(leaves: Iterable[Tensor]) -> None:
    """Let a replay of the step that is recorded refuse gradients that are of other ranks than they are now."""
    numbers = frozenset(map(id, leaves))
    wanted = _reduced & numbers

    def check() -> None:
        if _reduced & numbers != wanted:
            raise GradientError(
                "a captured step goes on with gradients of all ranks in one call and of one rank in another; "
                "use a function of its own for each"
            )

    if numbers:
        recording.again(check)


def reduced_now() -> frozenset[int]:
    """Copy of what `mark_reduced` has noted, for `restore_reduced`."""
    return frozenset(_reduced)


def restore_reduced(before: frozenset[int]) -> None:
    """Take back what was noted since; what is shared out no more is left out."""
    _reduced.clear()
    _reduced.update(before & _shares.keys())


def unreduced(leaves: Iterable[Tensor], rank: int) -> list[Tensor]:
    """The parameters with a gradient on this rank though another one updates them, so that it was not reduced."""
    return [
        leaf
        for leaf in leaves
        if leaf._grad is not None and (share := share_of(leaf)) is not None and share.owner != rank
    ]


def refuse_unreduced(name: str, leaves: Iterable[Tensor], rank: int) -> None:
    """Refuse gradients that were not reduced.

    Raises:
        GradientError: this rank has gradients of parameters that other ranks update.
    """
    if _shares and (wrong := unreduced(leaves, rank)):
        raise GradientError(
            f"{name}: {len(wrong)} gradients, one of shape {tuple(wrong[0].shape)}, were not reduced to the ranks that "
            "update their parameters: call the model through alpha.DataParallel, and leave no_sync() before the last "
            "backward pass of a step"
        )
