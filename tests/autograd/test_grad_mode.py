"""no_grad: nested, shared, in threads, on functions and generators."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator

import child
import pytest

import alpha
from alpha import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled


def test_one_object_entered_again_and_again() -> None:
    mode = no_grad()
    with mode:
        with mode:
            assert not is_grad_enabled()
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_two_threads_at_once() -> None:
    """Threads that enter and leave one object, in any order, do not see each other."""
    mode, found = no_grad(), {}
    steps = [threading.Event() for _ in range(4)]

    def first() -> None:
        with mode:
            steps[0].set()
            steps[1].wait(child.HANG_S)
            found["first inside"] = is_grad_enabled()
        found["first after"] = is_grad_enabled()
        steps[2].set()

    def second() -> None:
        steps[0].wait(child.HANG_S)
        found["second before"] = is_grad_enabled()
        with mode:
            steps[1].set()
            steps[2].wait(child.HANG_S)
            found["second inside"] = is_grad_enabled()
        found["second after"] = is_grad_enabled()

    threads = [threading.Thread(target=body) for body in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(child.HANG_S)
    assert found == {
        "first inside": False,
        "second before": True,
        "first after": True,
        "second inside": False,
        "second after": True,
    }
    assert is_grad_enabled()


def test_a_thread_records_while_another_does_not() -> None:
    x = alpha.tensor([2.0], requires_grad=True)
    recorded: list[bool] = []
    with no_grad():
        thread = threading.Thread(target=lambda: recorded.append((x * 2.0).requires_grad))
        thread.start()
        thread.join(child.HANG_S)
        recorded.append((x * 2.0).requires_grad)
    assert recorded == [True, False]


def test_a_generator_records_nothing_and_leaves_its_caller_alone() -> None:
    x = alpha.tensor([2.0], requires_grad=True)
    log: list[object] = []

    @no_grad()
    def steps(n: int) -> Generator[bool, str, str]:
        """Doc"""
        try:
            for _ in range(n):
                try:
                    log.append((yield (x * 2.0).requires_grad))
                except KeyError as error:
                    log.append((error.args[0], is_grad_enabled()))
        finally:
            log.append(("end", is_grad_enabled()))
        return "done"

    generator = steps(4)
    assert steps.__doc__ == "Doc"
    assert is_grad_enabled()
    assert next(generator) is False
    assert is_grad_enabled()
    assert generator.send("sent") is False
    assert generator.throw(KeyError("thrown")) is False
    assert is_grad_enabled()
    assert next(generator) is False
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "done"
    assert log == ["sent", ("thrown", False), None, None, ("end", False)]
    assert is_grad_enabled()

    log.clear()
    generator = steps(2)
    next(generator)
    generator.close()
    assert log == [("end", False)]
    generator = steps(2)
    next(generator)
    with pytest.raises(ZeroDivisionError):
        generator.throw(ZeroDivisionError)
    assert is_grad_enabled()


def test_a_generator_inside_no_grad_of_its_caller() -> None:
    @no_grad()
    def one() -> Iterator[bool]:
        yield is_grad_enabled()

    with no_grad():
        assert list(one()) == [False]
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_a_function_that_raises() -> None:
    @no_grad()
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert is_grad_enabled()


def test_what_cannot_be_decorated() -> None:
    async def waits() -> None: ...

    async def gives() -> object:
        yield 1

    for function in (waits, gives, type("Model", (), {})):
        with pytest.raises(TypeError, match=r"no_grad: \w+ is a class or an asynchronous function"):
            no_grad()(function)


def test_enable_grad_within_no_grad() -> None:
    @enable_grad()
    def decorated() -> bool:
        return is_grad_enabled()

    @enable_grad()
    def generator() -> Iterator[bool]:
        yield is_grad_enabled()
        yield is_grad_enabled()

    with no_grad():
        with enable_grad():
            assert is_grad_enabled()
            with no_grad():
                assert not is_grad_enabled()
            assert is_grad_enabled()
        assert decorated()
        for enabled in generator():
            assert enabled
            assert not is_grad_enabled()
    with pytest.raises(TypeError, match=r"enable_grad: Model is a class"):
        enable_grad()(type("Model", (), {}))


def test_set_grad_enabled() -> None:
    for mode in (False, True):
        with set_grad_enabled(mode):
            assert is_grad_enabled() is mode
            with set_grad_enabled(not mode):
                assert is_grad_enabled() is not mode
            assert is_grad_enabled() is mode
    assert is_grad_enabled()
    set_grad_enabled(False)
    assert not is_grad_enabled()
    set_grad_enabled(True)
    assert is_grad_enabled()

    @set_grad_enabled(False)
    def decorated() -> bool:
        return is_grad_enabled()

    assert is_grad_enabled()  # a decorator acts on the function alone
    assert not decorated()
    assert is_grad_enabled()
    with pytest.raises(ZeroDivisionError), set_grad_enabled(False):
        raise ZeroDivisionError
    assert is_grad_enabled()


def test_inference_mode() -> None:
    x = alpha.tensor([2.0], requires_grad=True)
    with inference_mode():
        y = x * 2.0
        assert not y.requires_grad
        with inference_mode(False):
            assert (x * 2.0).requires_grad
        assert not is_grad_enabled()
    assert is_grad_enabled()

    @inference_mode()
    def decorated() -> bool:
        return is_grad_enabled()

    @inference_mode(mode=False)
    def recording() -> bool:
        return is_grad_enabled()

    assert not decorated()
    with no_grad():
        assert recording()
    with pytest.raises(TypeError, match=r"inference_mode: Model is a class .* use `with inference_mode\(\):`"):
        inference_mode()(type("Model", (), {}))


def test_decorators_without_parentheses() -> None:
    @no_grad  # type: ignore[call-arg]
    def nothing(value: int) -> tuple[int, bool]:
        """Doc"""
        return value, is_grad_enabled()

    @inference_mode  # type: ignore[arg-type]
    def inference() -> bool:
        return is_grad_enabled()

    @enable_grad  # type: ignore[call-arg]
    def recorded() -> bool:
        return is_grad_enabled()

    assert nothing(3) == (3, False)
    assert nothing.__doc__ == "Doc"
    assert not inference()
    with no_grad():
        assert recorded()
    assert is_grad_enabled()
