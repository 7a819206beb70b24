"""Settings of a thread: one name out of several, from here on or within a context."""

from __future__ import annotations

import contextlib
import threading


class Setting(threading.local):
    """One of `names` for each thread, at first the first of them.

    Args:
        title: what it is, for errors.
    """

    def __init__(self, title: str, names: tuple[str, ...]) -> None:  # is called once a thread
        self.title, self.names = title, names
        self.name = names[0]
        self.outer: list[str] = []  # to go back to, innermost last

    def checked(self, name: str) -> str:
        """The name; `ValueError` if it is none of the setting's."""
        if not isinstance(name, str) or name not in self.names:
            raise ValueError(f"{self.title} {name!r} is not one of {', '.join(self.names)}")
        return name


class Within(contextlib.ContextDecorator):
    """Context, or decorator, in which a setting has a name."""

    def __init__(self, setting: Setting, name: str) -> None:
        self._setting = setting
        self.name = setting.checked(name)

    def __enter__(self) -> Within:
        name, setting = self._inside(), self._setting
        setting.outer.append(setting.name)
        setting.name = name
        return self

    def __exit__(self, *_: object) -> None:
        self._setting.name = self._setting.outer.pop()

    def _inside(self) -> str:
        return self.name
