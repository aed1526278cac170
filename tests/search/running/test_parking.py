"""Where a trial's process is, is asked as seldom as it can be: nothing is decided meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import ray
from ray.tune.experiment import Trial

from search.running.parking import Parking
from trainable.tune.place import Place

HERE = Place(machine="h1", address="10.0.0.1", node="n", process=1)
OTHER = Place(machine="h2", address="10.0.0.2", node="m", process=2)


@pytest.mark.parametrize(
    ("ranks", "times"), [((HERE,), 1), ((), 3), ((HERE, OTHER), 3)], ids=["one", "not yet started", "two"]
)
def test_a_process_of_one_rank_is_asked_once_and_others_for_each_trial(
    ranks: tuple[Place, ...], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def remote() -> tuple[Place, ...]:
        asked.append("places")
        return ranks

    monkeypatch.setattr(ray, "get", lambda answer, timeout: answer)
    process = SimpleNamespace(_actor_id="a", places=SimpleNamespace(remote=remote))
    kept = Parking(lambda _: None, lambda _: None)
    for number in range(3):
        trial = SimpleNamespace(
            trial_id=f"{number}", temporary_state=SimpleNamespace(ray_actor=process), config={}
        )
        assert kept.arrives(cast(Trial, trial)) == "trains"
        assert kept.places(cast(Trial, trial)) == ranks
        kept.leave(trial.trial_id)
    assert len(asked) == times
