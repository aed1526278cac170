"""Tests what is sent to MLflow for each event, without MLflow."""

import pytest

from search.followers.run_updates import (
    FEW_METRICS,
    LONGEST_PARAM,
    LONGEST_TAG,
    Outbox,
    Point,
    clip,
    status_of,
)
from search.record.journal import (
    CostEvent,
    DriverStart,
    EndEvent,
    Event,
    PlaceEvent,
    PromotionEvent,
    RetryEvent,
    StartEvent,
    TrialEnd,
    TrialEvent,
)
from search.study.first import FirstTrial
from search.study.objective import Constraints
from tests.epoch_results import epoch_result
from tests.search.small_events import NO_FIELDS, begun, epoch, place, session, settled
from trainable.recipe import Recipe
from trainable.recipe.network_cost import NetworkCost


def outbox(*events: Event, objective: str = "val_accuracy", every: bool = False) -> Outbox:
    """Return an outbox with these events, one a second; the first two, which begin a search, at 100 s."""
    box = Outbox(objective, epochs=3, params={"seed": "0"}, every_metric=every)
    for number, event in enumerate(events):
        box.apply(event.model_copy(update={"sequence": number, "time": 100.0 + max(0, number - 1)}))
    return box


STARTED = begun(epochs=3, rungs=(2,))
FINISHED = session("finished")
INTERRUPTED = session("interrupted", "a signal")
RESUMED = session("resumed")


def trial(number: int) -> TrialEvent:
    return TrialEvent(trial=number, values={"optimizer.lr": 0.1}, own=number == 0, **NO_FIELDS)


def test_before_the_search_began_there_is_nothing_to_tell() -> None:
    assert outbox().record.search_id is None
    assert outbox().updates == {}


def test_a_trials_values_are_params_written_as_in_yaml() -> None:
    values = {"a.f": 1e-4, "a.i": 3, "a.b": True, "a.n": None, "a.s": "sgd", "a.long": "x" * 7000}
    change = outbox(*STARTED, TrialEvent(trial=0, values=values)).updates[0]
    long = change.params.pop("a.long")
    assert change.params == {"a.f": "0.0001", "a.i": "3", "a.b": "true", "a.n": "null", "a.s": "sgd"}
    assert len(long) == LONGEST_PARAM


def test_epochs_are_points_at_their_own_time_and_step() -> None:
    change = outbox(*STARTED, trial(0), epoch(0, 1, 0.5), epoch(0, 2, 0.75, rung=2), every=True).updates[0]
    assert change.points[0].key == "val_accuracy", "the objective is the first"
    assert set(change.points) == {
        *(Point(name, value, 102_000, 1) for name, value in epoch_result(1, 0.5).metrics().items()),
        *(Point(name, value, 103_000, 2) for name, value in epoch_result(2, 0.75).metrics().items()),
    }
    assert change.tags["tunebook.epochs"] == "2"
    assert change.tags["tunebook.rung"] == "2"


def test_unless_every_number_is_asked_for_an_epoch_has_the_few_that_people_look_at() -> None:
    measured = epoch(0, 1, extra_metrics={"val_macro_f1": 0.4})
    few = outbox(*STARTED, trial(0), measured).updates[0].points
    assert {point.key for point in few} == {*FEW_METRICS, "val_macro_f1"}
    by_balanced = settled(objective="val_balanced_accuracy")
    one = outbox(STARTED[0], by_balanced, trial(0), epoch(0, 1), objective="val_balanced_accuracy")
    assert {point.key for point in one.updates[0].points} == {*FEW_METRICS, "val_balanced_accuracy"}


def test_the_studys_fields_are_the_searchs_params_once() -> None:
    assert outbox(*STARTED).updates[None].params == {"seed": "0"}
    box = outbox(*STARTED)
    box.empty()
    box.apply(RESUMED.model_copy(update={"sequence": 2, "time": 102.0}))
    assert box.updates[None].params == {}


@pytest.mark.parametrize(("objective", "better"), [("val_accuracy", 0.75), ("val_loss", 0.25)])
def test_the_best_so_far_is_a_point_whenever_a_trial_ends(objective: str, better: float) -> None:
    scores = {"val_accuracy": (0.5, 0.75, 0.625), "val_loss": (0.5, 0.25, 0.375)}[objective]
    events: list[Event] = [STARTED[0], settled(epochs=3, objective=objective), *map(trial, range(4))]
    for number, score in enumerate(scores):
        result = epoch(number, 1, score, val_loss=score)
        events += [result, EndEvent(trial=number, state="finished")]
    events += [EndEvent(trial=3, state="failed")]
    box = outbox(*events, objective=objective)
    points = [(point.key, point.value, point.step) for point in box.updates[None].points]
    name = f"best_{objective}"
    assert points == [(name, 0.5, 1), (name, better, 2), (name, better, 3), (name, better, 3)]
    assert box.best is not None
    assert box.best.id == 1


def test_at_its_end_a_search_has_the_time_of_its_slots_as_points_with_shares() -> None:
    start = DriverStart(seconds=9.0, slots=1, gpus=0.0)
    begun = STARTED[0].model_copy(update={"start": start}), STARTED[1]
    trained = epoch(0, 1, epoch_seconds=0.6, checkpoint_seconds=0.1)
    starts = StartEvent(trial=0, attempt=1, epoch=0)
    events: tuple[Event, ...] = (*begun, trial(0), starts, trained, FINISHED)
    found = {point.key: point.value for point in outbox(*events).updates[None].points}
    assert found["slots_total_seconds"] == 9.0 + 4.0
    assert found["slots_starting_seconds"] == 9.0 + 2.0
    assert found["slots_checkpoint_seconds"] == pytest.approx(0.1)
    assert found["slots_steps_share"] == pytest.approx((0.6 - 0.1 - 0.1) / 13.0)
    former = outbox(*STARTED, trial(0), FINISHED).updates[None].points
    assert not any(point.key.startswith("slots") for point in former)


def test_the_tags_of_a_trial_say_where_its_last_attempt_trains() -> None:
    where = PlaceEvent(trial=0, ranks=(place("h1", "0"), place("h2", "MIG-1", process=8)))
    tags = outbox(*STARTED, trial(0), StartEvent(trial=0, attempt=1, epoch=0), where).updates[0].tags
    assert tags["tunebook.machine"] == "h1 (10.0.0.1) and h2 (10.0.0.2)"
    assert tags["tunebook.gpu"] == "GPU 0 (NVIDIA H200), GPU MIG-1 (NVIDIA H200)"
    assert tags["tunebook.process"] == "7, 8"


def test_the_tags_of_a_trial_have_a_line_on_where_each_attempt_trains() -> None:
    begin = [StartEvent(trial=0, attempt=number, epoch=0) for number in (1, 2, 3)]
    first, last = (PlaceEvent(trial=0, ranks=(place(each, "0"),)) for each in ("h1", "h2"))
    tags = outbox(*STARTED, trial(0), begin[0], first, begin[1], begin[2], last).updates[0].tags
    assert tags["tunebook.places"].splitlines() == [
        "attempt 3: h2 (10.0.0.2), GPU 0 (NVIDIA H200), process 7",
        "attempt 2: not known",
        "attempt 1: h1 (10.0.0.1), GPU 0 (NVIDIA H200), process 7",
    ]


def test_what_a_network_costs_is_points_before_its_first_epoch() -> None:
    first, second = STARTED
    limits = Constraints.model_validate({"latency_ms": {"max": 20.0}})
    cost = NetworkCost(parameters=7, latency_ms=25.0, memory_gib=0.5)
    events = (
        first,
        second.model_copy(update={"constraints": limits}),
        trial(0),
        CostEvent(trial=0, cost=cost),
    )
    named = {"parameters": 7, "latency_ms": 25.0, "memory_gib": 0.5}
    points = outbox(*events).updates[0].points
    assert points == [Point(name, value, 102_000, 0) for name, value in named.items()]
    ended = outbox(*events, EndEvent(trial=0, state="infeasible", reason="too slow")).updates[0]
    assert (ended.status, ended.tags["tunebook.outcome"]) == (("FINISHED", 103_000), "infeasible")


def test_a_new_run_needs_no_status_and_one_that_goes_on_is_set_running() -> None:
    first = outbox(*STARTED, trial(0), StartEvent(trial=0, attempt=1, epoch=0))
    assert first.updates[0].status is None
    assert first.updates[None].status is None
    again = outbox(*STARTED, trial(0), trial(1), EndEvent(trial=1, state="failed"), INTERRUPTED, RESUMED)
    assert again.updates[None].status == ("RUNNING", 105_000)
    assert again.updates[0].status == ("RUNNING", 105_000)
    assert again.updates[0].tags["tunebook.state"] == "queued"
    assert again.updates[1].status == ("FAILED", 103_000), "what has ended stays so"
    assert again.updates[None].tags == {"tunebook.state": "running", "tunebook.reason": ""}


def test_a_trial_that_is_paused_at_a_rung_says_so_also_after_a_kill() -> None:
    first, second = STARTED
    began = (first, second.model_copy(update={"scheduler": "promotion"}))
    pause = epoch(1, 2, 0.7, rung=2).model_copy(update={"pauses": True})
    start = StartEvent(trial=1, attempt=1, epoch=0)
    events: list[Event] = [*began, trial(0), trial(1), start, epoch(1, 1), pause]
    state = "tunebook.state"
    assert outbox(*events).updates[1].tags[state] == "paused"
    killed = outbox(*events)
    killed.interrupt()
    assert (killed.updates[1].tags[state], killed.updates[1].status) == ("interrupted", ("KILLED", 105_000))
    resumed = outbox(*events, RESUMED)
    assert [resumed.updates[each].tags[state] for each in (0, 1)] == ["queued", "paused"]
    assert outbox(*events, PromotionEvent(trial=1, rung=2)).updates[1].tags[state] == "running"


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("finished", "FINISHED"),
        ("stopped", "FINISHED"),  # MLflow's pages mark KILLED with the red cross of what failed
        ("diverged", "KILLED"),
        ("failed", "FAILED"),
    ],
)
def test_each_outcome_has_a_status_and_a_tag(outcome: TrialEnd, status: str) -> None:
    trained = [] if outcome == "failed" else [epoch(0, 1)]
    ended = EndEvent(trial=0, state=outcome, reason="so it is")
    change = outbox(*STARTED, trial(0), *trained, ended).updates[0]
    assert status_of(outcome) == status
    assert change.status == (status, 102_000 + 1000 * len(trained))
    assert change.tags["tunebook.outcome"] == outcome
    assert change.tags["tunebook.state"] == ("stopped early" if outcome == "stopped" else outcome)
    assert change.tags["tunebook.reason"] == "so it is"


def test_reasons_are_cut_to_what_a_tag_holds() -> None:
    box = outbox(
        *STARTED, trial(0), RetryEvent(trial=0, reason="r" * 9000), EndEvent(trial=0, state="failed")
    )
    assert len(box.updates[0].tags["tunebook.last_failure"]) == LONGEST_TAG
    assert "tunebook.reason" not in box.updates[0].tags
    assert clip("abcdef", 4) == "abc…"
    assert clip("abcd", 4) == "abcd"


def test_an_interruption_closes_the_search_and_what_was_live() -> None:
    change = outbox(*STARTED, trial(0), trial(1), EndEvent(trial=1, state="stopped"), INTERRUPTED).updates
    assert change[None].status == ("KILLED", 104_000)
    assert change[None].tags["tunebook.state"] == "interrupted"
    assert change[None].tags["tunebook.reason"] == "a signal"
    assert change[0].status == ("KILLED", 104_000)
    assert change[0].tags["tunebook.state"] == "interrupted"
    assert change[1].tags["tunebook.state"] == "stopped early"


def test_a_killed_drivers_search_is_closed_only_when_asked_and_only_if_open() -> None:
    box = outbox(*STARTED, trial(0), epoch(0, 1, 0.5))
    assert box.updates[None].status is None
    box.interrupt()
    assert box.updates[None].status == ("KILLED", 102_000)
    assert box.updates[0].tags["tunebook.state"] == "interrupted"
    done = outbox(*STARTED, FINISHED)
    done.interrupt()
    assert done.updates[None].status == ("FINISHED", 101_000)


def test_the_end_sums_the_search_up_in_numbers() -> None:
    box = outbox(
        *STARTED,
        trial(0),
        trial(1),
        trial(2),
        *(epoch(0, number, 0.3 * number, 2 if number == 2 else None) for number in (1, 2, 3)),
        EndEvent(trial=0, state="finished"),
        epoch(1, 1, 0.95),
        EndEvent(trial=1, state="stopped"),
        EndEvent(trial=2, state="failed", reason="out of memory"),
        FINISHED,
    )
    points = [point for point in box.updates[None].points if point.milliseconds == 111_000]
    assert {point.key: point.value for point in points} == {
        "best_val_accuracy": pytest.approx(0.9),
        "best_trial": 0,
        "epochs_trained": 4,
        "epochs_if_unpruned": 6,
        "trials": 3,
        "trials_finished": 1,
        "trials_stopped": 1,
        "trials_failed": 1,
    }
    assert {point.step for point in points} == {4}


def test_what_is_known_is_emptied_and_what_is_live_is_not_forgotten() -> None:
    box = outbox(*STARTED, trial(0))
    assert list(box.recipes) == [0]
    box.empty()
    assert (box.updates, box.recipes) == ({}, {})
    box.apply(INTERRUPTED)
    assert box.updates[0].tags["tunebook.state"] == "interrupted"
    assert (box.began(None), box.began(0)) == (100_000, 101_000)


def test_values_that_make_no_recipe_leave_nothing_to_store() -> None:
    assert outbox(*STARTED, TrialEvent(trial=0, values={"optimizer.lr": 0.1})).recipes == {}


def test_a_first_trial_names_where_it_comes_from() -> None:
    recipe = Recipe()
    first = FirstTrial(source="old.yaml", values={"optimizer.lr": 0.1}, recipe=recipe.tree())
    began, choice = STARTED
    asked = TrialEvent(
        trial=1, values=first.values, recipe=recipe.tree(), digest=recipe.digest(), first=first.mark
    )
    box = outbox(began, choice.model_copy(update={"first": (first,)}), trial(0), asked)
    assert box.updates[1].tags["tunebook.first"] == "old.yaml"
    assert "tunebook.first" not in box.updates[0].tags


def test_a_trials_run_names_the_digest_of_its_own_teacher() -> None:
    first, second = STARTED
    known = first.model_copy(update={"weights": {"/a": "0a", "/b": "0b"}})
    taught = Recipe().with_values({"distillation.teacher": "/b"})
    plain, other = trial(0), trial(1).model_copy(update={"recipe": taught.tree(), "digest": taught.digest()})
    starts = [StartEvent(trial=number, attempt=1, epoch=0) for number in (0, 1)]
    updates = outbox(known, second, plain, other, *starts).updates
    assert updates[1].tags["tunebook.teacher_digest"] == "0b"
    assert "tunebook.teacher_digest" not in updates[0].tags
