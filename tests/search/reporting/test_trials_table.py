"""Tests the table of trials on screens of any width: a number is whole, or it is not there."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from search.record.machines import Machine
from search.record.summary import Summary
from search.record.trials import Trial
from search.reporting.tables import trials_table
from spaces.domains import Value
from tests.search.small_events import epoch, place
from trainable.recipe import Recipe

VALUES: dict[str, Value] = {
    "optimizer.kind": "sgd",
    "optimizer.lr": 0.0123456,
    "model.dropout": None,
    "augmentation.policy.kind": "trivialaugment",
    "evaluation.flip": True,
    "optimizer.weight_decay": 1.2345e-06,
    "schedule.warmup_epochs": 1.25,
    "regularisation.averaging.decay": 0.998877,
    "optimizer.momentum": 0.9123,
}
NUMBERS = {"0.0123", "null", "trivialaugment", "true", "1.23e-06", "1.25", "0.999", "0.912"}


def summary(values: dict[str, Value] = VALUES) -> Summary:
    trials = tuple(
        Trial(
            id=number,
            values=values,
            attempts=1,
            history=(epoch(number, 12, 0.987654),),
            end="finished" if number else "diverged",
        )
        for number in range(2)
    )
    return Summary("x", None, "finished", None, "val_accuracy", trials, 12, 0.0)


def printed(width: int, **changes: Any) -> str:
    found = summary(**changes)
    out = Console(file=io.StringIO(), width=width, highlight=False)
    out.print(trials_table(found, found.trials, out.width))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def machine(name: str) -> Machine:
    return Machine(
        name=name, devices=("no GPU",), trials=1, attempts=1, failed=0, images_per_second=None, speed=None,
        idle=0.0, is_slow=False,
    )  # fmt: skip


def test_a_wide_screen_has_every_value_and_the_best_by_its_state() -> None:
    text = printed(130)
    assert text.count("0.9877") == 2
    assert set(text.split()) >= {*NUMBERS, "finished,", "best", "diverged"}
    assert "columns: see" not in text


def test_where_each_trial_trained_last_is_said_of_several_machines() -> None:
    """Of one machine it would be the same in each row."""
    places = ((place("h1", "0"),), (place("h2", "1"),))
    found = summary()
    trials = (replace(found.trials[0], places=places), found.trials[1])
    machines = (machine("h1"), machine("h2"))
    for many in (machines, machines[:1]):
        out = Console(file=io.StringIO(), width=200, highlight=False)
        out.print(trials_table(replace(found, trials=trials, machines=many), trials, out.width))
        assert isinstance(out.file, io.StringIO)
        assert ("h2 (10.0.0.2), GPU 1" in out.file.getvalue()) is (len(many) > 1)
        assert "h1 (10.0.0.1)" not in out.file.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_narrow_screen_breaks_no_number_and_says_what_is_left_out(width: int) -> None:
    text = printed(width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "0.9877" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("    1  ")]
    assert row[:4] == ["1", "best", "12", "0.9877"]
    assert set(row[4:]) <= {"sgd", *NUMBERS}
    left_out = len(VALUES) - len(row[4:])
    assert (f"{left_out} more field{'s' if left_out > 1 else ''} in the report" in text) is (left_out > 0)


def test_the_state_says_less_before_a_column_is_left_out() -> None:
    whole = max(len(line.rstrip()) for line in printed(200).splitlines())
    text = printed(whole - 2)
    assert "finished, best" not in text
    assert "column" not in text


def test_a_rate_comes_with_the_batch_that_it_is_at() -> None:
    assert "rates are at batch 256" in printed(120)
    assert "rates are at batch 256" in printed(120, values={"optimizer.sgd_lr": 0.1})
    assert "batch" not in printed(120, values={"optimizer.momentum": 0.9})


def test_nothing_is_written_as_in_a_recipe() -> None:
    text = printed(120)
    assert "None" not in text
    assert "True" not in text


def test_where_networks_differ_each_trial_has_the_name_of_its_own() -> None:
    """Also a first trial of a person's, whose values do not name it."""
    named, small = {"kind": "timm", "name": "resnet18"}, {"kind": "resnet_small"}
    drawn: dict[str, Value] = {"model.name": "resnet18", "optimizer.lr": 0.1}
    first, second = summary(drawn).trials
    one = replace(first, recipe=Recipe().with_values({"model": named}).tree())
    other = replace(
        second, values={"optimizer.lr": 0.1}, recipe=Recipe().with_values({"model": small}).tree()
    )
    found, out = replace(summary(), trials=(one, other)), Console(file=io.StringIO(), width=100)
    out.print(trials_table(found, found.trials, out.width))
    assert isinstance(out.file, io.StringIO)
    heading, *rows = out.file.getvalue().splitlines()[1:]
    assert heading.split()[-2:] == ["network", "lr"]
    assert [row.split()[-2:] for row in rows[:2]] == [["resnet18", "0.1"], ["resnet_small", "0.1"]]


def test_a_stopped_trial_is_said_to_be_stopped_early_and_timms_muon_is_called_so() -> None:
    found = summary({"optimizer.kind": "timm", "optimizer.name": "muon"})
    trials = tuple(replace(each, end="stopped") for each in found.trials)
    out = Console(file=io.StringIO(), width=100)
    out.print(trials_table(replace(found, trials=trials), trials, out.width))
    assert isinstance(out.file, io.StringIO)
    text = out.file.getvalue()
    assert text.count("stopped early") == text.count("muon") == 2
    assert "timm" not in text
