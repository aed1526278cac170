"""What a search can do without: whoever teaches it, follows it, shows it and draws conclusions from it.

The driver knows none of these guests by name. Whoever starts it plugs them in (`search.commands.guests`);
with none of them it makes the same search of a study that learns from no earlier one, and refuses others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self

from search.deciding.finalists import Final
from search.deciding.pruning import Pruning
from search.record.folder import Caution
from search.record.home import Home
from search.record.lease import Lease
from search.running.switch import StopSwitch
from search.study import Study
from search.study.code import Code
from search.study.space import SpaceBuilder, plain_space
from search.study.study import absolute
from spaces.space import Space
from trainable.data import DataSet
from trainable.recipe import Recipe

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.tune.carried import Carried

EndState = Literal["finished", "interrupted", "failed"]


class Display(Protocol):
    """What a person sees of a search while it runs; it is entered before the first trial starts."""

    has_trained: bool  # an epoch of a trial, or its end, has come since the view was made

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...
    def update(self) -> None:
        """Show what is new; it may be called as often as one likes."""


@dataclass(frozen=True)
class Followed:
    """A search as its followers need it."""

    home: Home
    study: Study
    space: Space
    model: Carried | None  # builds the network, where it is a person's own


class Followers(Protocol):
    """Whatever reads the journal while a driver writes it. Nothing that fails there ends the search."""

    def at_work(self, switch: StopSwitch) -> AbstractContextManager[None]:
        """Send what is new to whoever receives it during the block, and the rest at its end."""

    def has_stored(self, trial: int) -> bool:
        """Say whether a trial may start, since the search's store has it; wait for that shortly."""

    def catch_up(self, seconds: float) -> None:
        """Wait so long at most until what the journal holds now has been sent."""

    def say_what_is_lacking(self) -> None:
        """Say, after the block, what could not be sent, and how it is sent later."""


class NoFollowers:
    """The followers of a search that nobody follows."""

    def at_work(self, switch: StopSwitch) -> AbstractContextManager[None]:
        return nullcontext()

    def has_stored(self, trial: int) -> bool:
        return True

    def catch_up(self, seconds: float) -> None: ...
    def say_what_is_lacking(self) -> None: ...


class NoDisplay:
    """The view of a search that nobody watches."""

    has_trained = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...
    def update(self) -> None: ...


@dataclass(frozen=True)
class Guests:
    """What whoever starts a driver plugs into it, in the order in which a search comes to it."""

    # opens the searches that a study learns from; raises StudyError where one of them cannot teach
    space: Callable[[Study], SpaceBuilder] = plain_space
    # where a teacher's files are that a study names; raises UserError
    teacher: Callable[[str], str] = absolute
    # what is found about the images of a study, whose recipes follow from this one; None: nobody looked
    findings: Callable[[DataSet, Study, Recipe], tuple[Caution, ...] | None] = lambda *images: None
    # why followers will not take the search, in words
    refusal: Callable[[Study], str | None] = lambda study: None
    followers: Callable[[Followed, Lease | None], Followers] = lambda followed, lease: NoFollowers()
    # of a study, its pruning and final, so many trials at once, in a folder
    view: Callable[[Study, Pruning, Final, int, Path], Display] = lambda *search: NoDisplay()
    # writes what a search leaves, before the journal says that it has ended so, and why
    results: Callable[[Path, EndState, str | None], None] = lambda folder, state, reason: None
    # concludes a search for a person: how it ended, and the fault that has kept it from going on. It is given
    # the images, and a person's own functions, which no file names
    conclusion: Callable[[Path, EndState, str | None, DataSet, Code], None] = lambda *search: None
    # sends followers what they lack of a search that no driver is at work on; True if that is all
    sync: Callable[[Home, Lease | None], bool] = lambda home, lease: True


NO_GUESTS = Guests()
