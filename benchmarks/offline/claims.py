"""What is asked of the new sampler, by intervals, against random draws and against peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from offline.arms import BASELINE
from offline.peer_arms import PEERS
from offline.regret import Array, Interval, difference, final, over_tasks, ratio

Regrets = Mapping[str, Mapping[str, Array]]  # by arm and task, one run a row, over shares of the budget

NEW = "auto+asha"
RIGHT, ADVERSARIAL = f"{NEW} right", f"{NEW} adversarial"
THIRD = 1 / 3


@dataclass(frozen=True)
class Claim:
    """What is asked of an arm: a figure that is at most `limit`.

    It is met where the whole interval is; a claim that is not `strict` where some of the interval is.
    """

    arm: str
    asked: str
    figure: Interval
    limit: float
    strict: bool = True

    @property
    def met(self) -> str:
        """Whether the claim is met, in words."""
        value, low, high = self.figure
        if not self.strict:
            return "yes" if low <= self.limit else "no"
        if high <= self.limit:
            return "yes"
        return "on average" if value <= self.limit else "no"


def claims(found: Regrets, shares: Array) -> Iterator[Claim]:
    """Yield what is asked of the arms that are there, against the arms that are there."""
    runs = {name: over_tasks(tasks) for name, tasks in found.items()}
    if NEW in runs:
        yield Claim(
            NEW, f"final regret over that of {BASELINE}", ratio(runs[NEW], runs[BASELINE], 1.0, shares), 0.5
        )
        for peer in [name for name in runs if name in PEERS and PEERS[name].priors is None]:
            asked = f"final regret less that of {peer}"
            yield Claim(NEW, asked, difference(runs[NEW], runs[peer], 1.0, shares), 0.0)
    best = best_peer(found, shares)
    if RIGHT in runs and best is not None:
        asked = f"regret at a third of the budget less the final one of {best}, the best peer"
        yield Claim(RIGHT, asked, difference(runs[RIGHT], runs[best], THIRD, shares, other_at=1.0), 0.0)
    if ADVERSARIAL in runs and NEW in runs:
        asked = f"final regret less that of {NEW}, not above 0 by its interval"
        yield Claim(
            ADVERSARIAL, asked, difference(runs[ADVERSARIAL], runs[NEW], 1.0, shares), 0.0, strict=False
        )


def best_peer(found: Regrets, shares: Array) -> str | None:
    """Return the peer with the lowest final regret among those that have no priors, or right ones."""
    peers = [name for name in found if name in PEERS and PEERS[name].priors in (None, "right")]
    return min(peers, key=lambda name: final(over_tasks(found[name]), shares), default=None)
