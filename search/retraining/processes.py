"""Runs work on recipes in fresh processes, which know nothing but the recipe's YAML."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

from search.facts.hardware import local_hardware
from trainable.bench import HERE, Bench, silent
from trainable.errors import UserError
from trainable.processes import end_with_parent, undisturbed
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import parse_tree, to_yaml
from trainable.stages import Count, Counts, Stage, counting, shown_by

TOLD_SECONDS = 1.0  # so often a process tells how far it is

# a function of a module: the recipe, whether to score the test part, with what it works
Work = Callable[[Recipe, bool, Bench], Any]


class Done(NamedTuple):
    """What the work on one recipe returned, or why it came to nothing."""

    recipe: Recipe
    result: Any
    fault: str | None


class _Started(NamedTuple):
    """The process that works on one recipe, by the recipe's place in the order."""

    place: int
    process: SpawnProcess


def refuse_own_code(recipe: Recipe) -> None:
    """Raise UserError for a recipe that a process of its own cannot train from the file alone."""
    if recipe.model.kind == "own" or recipe.data.own:
        raise UserError(
            "the recipe uses functions of your own, which its file does not hold: train it with other seeds "
            "in Python, train(recipe.with_values({'loop.seed': 1}), model=..., data=..., test=True)"
        )


def in_processes(
    work: Work, recipes: Sequence[Recipe], *, test: bool = False, bench: Bench = HERE
) -> Generator[Done]:
    """Do the work on each recipe, read from its YAML in a process of its own; yield them in their order.

    What the next one to be yielded counts, such as its epochs, is counted here while it is waited for.
    On a CPU as many run at once as have the threads of the recipe's provenance; on a GPU one after the other.
    The processes that still work when this is closed, or interrupted, are ended; they end with this process,
    however it ends.
    """
    bench = replace(bench, say=silent)  # it is pickled, and these processes print nothing
    asked = [(work, to_yaml(recipe.tree(), {}), test, bench) for recipe in recipes]
    for recipe, found in zip(recipes, _in_order(asked, _at_once(recipes)), strict=True):
        yield Done(recipe, *found)


def _at_once(recipes: Sequence[Recipe]) -> int:
    machine = local_hardware()
    threads = max((each.provenance.threads or 1 for each in recipes if each.provenance), default=1)
    return 1 if machine.gpus else max(1, sum(node.cpus for node in machine.nodes) // threads)


def _in_order(asked: Sequence[tuple[Any, ...]], at_once: int) -> Iterator[tuple[Any, str | None]]:
    """Yield in their order what `_done` returns for these arguments, each in a process of its own."""
    waiting, found = enumerate(asked), dict[int, tuple[Any, str | None]]()
    counts: dict[int, Count] = {}
    with _ended_at_last() as running:
        for place in range(len(asked)):
            with counting("", 0) as shown:
                while place not in found:
                    while len(running) < at_once and (following := next(waiting, None)) is not None:
                        _start(running, *following)
                    _show(shown, counts.get(place))
                    ready = wait(list(running))
                    for answer in [each for each in running if each in ready]:
                        started = running[answer]
                        received = _received(answer, started.process)
                        if isinstance(received, Count):
                            counts[started.place] = received
                        else:
                            found[started.place] = received
                            del running[answer]
            yield found.pop(place)


def _show(shown: Stage, count: Count | None) -> None:
    if count is not None:
        shown.unit, shown.total, shown.done = count


@contextmanager
def _ended_at_last() -> Iterator[dict[Connection, _Started]]:
    """Yield the processes that work now, by where their answers come from; ends those that are left."""
    running: dict[Connection, _Started] = {}
    try:
        yield running
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join()


def _start(running: dict[Connection, _Started], place: int, arguments: tuple[Any, ...]) -> None:
    """Start a process in which Ctrl-C is not heard: whoever started it ends it, and nothing is printed."""
    resource_tracker.ensure_running()  # which would let the signal through again
    context = multiprocessing.get_context("spawn")
    answer, to_answer = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(to_answer, *arguments))
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process inherits what is blocked
    try:
        with undisturbed():
            process.start()
            running[answer] = _Started(place, process)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)
    to_answer.close()  # from now on the process alone can answer, and its end is the end of the pipe


def _received(answer: Connection, process: SpawnProcess) -> Count | tuple[Any, str | None]:
    """Return how far a process is, or what it has come to: then it has ended."""
    try:
        received: Count | tuple[Any, str | None] = answer.recv()
    except EOFError:
        received = None, "its process was killed; out of memory?"
    if not isinstance(received, Count):
        process.join()
    return received


def _answer(to_answer: Connection, work: Work, recipe: str, test: bool, bench: Bench) -> None:
    end_with_parent()
    with _telling_how_far(to_answer) as counts, shown_by(counts):
        done = _done(work, recipe, test, bench)
    to_answer.send(done)


@contextmanager
def _telling_how_far(to_answer: Connection) -> Iterator[Counts]:
    """Send what is counted in the block, whenever that has changed; nothing is sent after it."""
    counts, is_over = Counts(), threading.Event()

    def tell() -> None:
        told = None
        while not is_over.wait(TOLD_SECONDS):
            if (now := counts.outermost) is not None and now != told:
                to_answer.send(now)
                told = now

    teller = threading.Thread(target=tell, name="tells how far it is", daemon=True)
    teller.start()
    try:
        yield counts
    finally:
        is_over.set()
        teller.join()


def _done(work: Work, recipe: str, test: bool, bench: Bench) -> tuple[Any, str | None]:
    try:
        return work(Recipe.from_tree(parse_tree(recipe, "the recipe")), test, bench), None
    except Exception as error:  # whatever ends a run; in this process there is nobody else to say it
        return None, f"{type(error).__name__}: {error}"
