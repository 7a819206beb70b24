"""Values that follow from a weight and lie beside it: its bfloat16 copy, its largest magnitude.

An operator that needs such a value asks the array of the weight for it (`ask`), and computes it itself the first time.
The next update by an optimizer's kernel finds what was asked for, makes room for it (`make_room`), and from then on
writes it together with the weight, as long as somebody asks between two updates. So a step has no pass of its own for
it, and a weight of which nobody asks anything costs nothing.

A value is right for one version of the weight's memory. Who else writes the weight raises the version
(alpha/autograd/versions.py), and the next reader computes the value anew, into the same room. A weight whose memory
another library has, too, has no such values, because nobody counts that library's writes.

A captured step begins and ends with right values. It notes those that it reads or writes (`Recording.keep`): what was
written by somebody else since is computed anew before a replay, see alpha/step/capturing/replay.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from alpha.runtime import recording

if TYPE_CHECKING:
    from alpha.autograd.versions import Version
    from alpha.core.primitive import Array
    from alpha.core.tensor import Tensor

NEVER = -1  # in the place of a version, for which a value was never right


class Kind:
    """A kind of value; arrays of a GPU alone have such values.

    Args:
        name: by which an array has its value of this kind.
        room: makes arrays for the values of some weights.
        write: `write(source, target)` computes the value of a weight into its array.
    """

    def __init__(
        self, name: str, room: Callable[[list[Array]], list[Array]], write: Callable[[Array, Array], None]
    ) -> None:
        self.name, self.room, self.write = name, room, write


class Derived:
    """A value of one kind of one weight. It does not keep the weight alive.

    Attributes:
        kind: of the value.
        array: the value; None as long as no optimizer has made room for it.
        version: of the weight's memory, once there is room.
        right_for: what `version.value` is as long as the value is right.
        asked: whether somebody has asked for it since an optimizer last wrote it.
    """

    __slots__ = ("_source", "array", "asked", "kind", "right_for", "version")

    def __init__(self, kind: Kind, source: Array) -> None:
        self.kind, self._source = kind, ref(source)
        self.array: Array | None = None
        self.version: Version | None = None
        self.right_for, self.asked = NEVER, True

    def read(self) -> Array | None:
        """The right value, computed anew if the weight was written since; None if none is kept."""
        version = self.version
        if version is None or version.shared:
            return None
        if version.value != self.right_for:
            self.refresh()
        elif recording.state.recording is not None:
            recording.state.recording.keep(self)
        return self.array

    def refresh(self) -> None:
        """Compute the value anew, if one is kept and somebody else has written the weight."""
        version, source = self.version, self._source()
        if version is None or version.shared or source is None or version.value == self.right_for:
            return
        self.note()
        self.right_for = NEVER
        self.kind.write(source, self.array)
        self.right_for = version.value

    def state(self) -> tuple[Any, ...]:
        """Everything but the weight, for a copy of the step that holds it (alpha/step/stand_ins.py)."""
        return self.kind, self.array, self.version, self.right_for, self.asked

    def note(self) -> None:
        """Tell a captured step that it reads or writes the value."""
        if recording.state.recording is not None:
            recording.state.recording.keep(self)

    def replayed(self) -> None:
        """Note that a replay has left a right value, and that it may have asked for it."""
        assert self.version is not None
        self.right_for, self.asked = self.version.value, True

    def forget(self) -> None:
        """Note that the value may be wrong for any version: what should have written it was not done."""
        self.right_for = NEVER


def ask(source: Array, kind: Kind) -> Derived:
    """The value of a kind of an array of a GPU, which somebody needs now."""
    held = source.derived
    if held is None:
        held = source.derived = {}
    found: Derived | None = held.get(kind.name)
    if found is None:
        found = held[kind.name] = Derived(kind, source)
    found.asked = True
    return found


def put_beside(source: Array, states: Iterable[tuple[Any, ...]]) -> None:
    """Let values with these states (`Derived.state`) lie beside an array."""
    source.derived = {}
    for kind, *state in states:
        found = source.derived[kind.name] = Derived(kind, source)
        found.array, found.version, found.right_for, found.asked = state


def derived_of(array: Array) -> Iterable[Derived]:
    """The values beside an array, of any device."""
    held: dict[str, Derived] | None = getattr(array, "derived", None)
    return () if held is None else held.values()


def is_beside(source: Array, array: Array) -> bool:
    """True if `array` is a value that lies beside `source`."""
    held = getattr(source, "derived", None)
    return held is not None and any([found.array is array for found in held.values()])


def make_room(weights: Iterable[Tensor], kinds: Iterable[Kind]) -> None:
    """Make room for what was asked of weights on one GPU since their last update, where every write is counted.

    The arena of captured steps has none, because such a weight is made anew by each step.
    """
    asking = [
        (tensor, found)
        for tensor in weights
        if (held := tensor.array.derived) is not None
        for found in held.values()
        if found.asked and found.version is None
    ]
    for kind in kinds:
        new = [
            (tensor, found)
            for tensor, found in asking
            if found.kind is kind
            and tensor._version.unaware is None
            and not tensor._version.shared
            and tensor.array.block.arena is tensor.array.device.arena
        ]
        if new:
            sources = [tensor.array for tensor, _ in new]
            arrays = sources[0].device.outside_capture(partial(kind.room, sources))
            for (tensor, found), array in zip(new, arrays, strict=True):
                found.array, found.version = array, tensor._version


def to_write(weights: Iterable[Array], kind: Kind) -> list[Derived | None]:
    """The value of a kind beside each weight that an update must write; None where nobody has asked for it."""
    found = [None if weight.derived is None else weight.derived.get(kind.name) for weight in weights]
    return [
        value if value is not None and value.asked and value.version is not None and not value.version.shared else None
        for value in found
    ]


def settle(values: Iterable[Derived]) -> None:
    """Note that the values were written together with their weights."""
    for value in values:
        assert value.version is not None
        value.right_for, value.asked = value.version.value, False


def refresh(values: Iterable[Derived]) -> None:
    """Compute those of the values anew whose weights somebody else has written."""
    for value in values:
        if value.version is not None and value.version.value != value.right_for:
            value.refresh()
