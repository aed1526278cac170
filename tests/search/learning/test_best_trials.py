"""Tests how the best trials' curves, and noise, change the next study."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from search.learning.best_trials import of_noise
from search.learning.evidence import Evidence, LeftAlone, SearchFinding
from search.learning.refine import refine
from search.learning.search import Search
from search.record.home import FACTS_FILE
from tests.search.learning.landscapes import BASE, DECAY, LARGER, MANY, RANGES, SMALL, At, after, ending, left
from tests.search.planted_searches import Images, Landscape, Run, planted


def test_an_overfit_net_is_expected_to_want_more_regularisation_of_two_new_kinds_at_once(
    tmp_path: Path,
) -> None:
    found = refine(Search(planted(tmp_path, ending(0.995, 0.85), images=LARGER, **SMALL)))
    assert [each.kind for each in found.findings] == ["overfit"]
    changes = after(found)
    assert "around" in changes[f"space.overrides.{DECAY}"]
    new = {"augmentation.policy.kind", "regularisation.label_smoothing"}
    assert changes.keys() == {f"space.overrides.{name}" for name in (DECAY, *new)}
    assert "randaugment 57%" in changes["space.overrides.augmentation.policy.kind"]
    waits = (
        "null -> 0.2 waits for the next round: augmentation.policy.kind and regularisation.label_smoothing"
    )
    assert left(found)["model.dropout"].startswith(waits)


def test_what_the_rules_leave_out_for_tiny_images_and_nets_is_not_proposed(tmp_path: Path) -> None:
    found = refine(Search(planted(tmp_path, ending(0.995, 0.85), images=MANY, **SMALL)))
    changed = {each.field for each in found.edits}
    assert changed == {DECAY, "regularisation.label_smoothing", "model.dropout"}
    for name, why in {
        "policy": "under 24 px, where the operations destroy the object",
        "masking": "under 24 px",
        "crop": "under 16",
        "mixing": "one of none, mixup. Images are mixed in 7 of 10 trials at ResNet50 size",
    }.items():
        wanted = left(found)[f"augmentation.{name}.kind"]
        assert "but the rule leaves it out: " in wanted
        assert why in wanted


def test_what_a_person_offers_may_be_proposed_whatever_the_rules_say(tmp_path: Path) -> None:
    policy = "augmentation.policy.kind"
    study = {**SMALL, "space__overrides": {**RANGES, policy: {"choice": ["none", "randaugment"]}}}
    best_without = ending(0.995, 0.85, policy)
    found = refine(Search(planted(tmp_path, best_without, images=MANY, **study)))
    assert "better the other way round: luck" in left(found)[policy]


def test_dropout_is_switched_off_as_its_options_spell_it(tmp_path: Path) -> None:
    dropout = "model.dropout"
    study = {**SMALL, "space__overrides": {**RANGES, dropout: {"choice": [None, 0.2]}}}

    def landscape(at: At, luck: random.Random) -> Run:
        run = ending(0.62, 0.62)(at, luck)
        return run if at[dropout] > 0.5 else Run(run.accuracy - 0.01, run.train - 0.01)

    found = refine(Search(planted(tmp_path, landscape, images=MANY, trials=12, **study)))
    assert [each.kind for each in found.findings] == ["underfit"]
    assert left(found)[dropout].startswith("0.2 -> null (")


def test_an_underfit_net_trains_longer_and_is_held_back_less(tmp_path: Path) -> None:
    study = {**SMALL, "base": {**BASE, "augmentation.policy.kind": "randaugment"}}
    found = refine(Search(planted(tmp_path, ending(0.62, 0.62), images=MANY, **study)))
    assert [each.kind for each in found.findings] == ["underfit"]
    assert after(found)["budget.epochs"] == "40"
    assert "the study fixes it" in left(found)["augmentation.policy.kind"]


@pytest.mark.slow("draws many trials")
def test_what_the_trials_speak_against_is_left(tmp_path: Path) -> None:
    smoothing = "regularisation.label_smoothing"
    study = {**SMALL, "space__overrides": {**RANGES, smoothing: {"choice": [0.0, 0.1]}}}
    plain = refine(Search(planted(tmp_path / "plain", ending(0.995, 0.85), images=MANY, **study)))
    worse = refine(Search(planted(tmp_path / "worse", ending(0.995, 0.85, smoothing), images=MANY, **study)))
    assert {each.kind for each in (*plain.findings, *worse.findings)} == {"overfit"}
    assert "better the other way" in left(worse)[smoothing]
    assert "better the other way" not in left(plain).get(smoothing, "")


def test_trials_that_still_rise_get_twice_the_epochs(tmp_path: Path) -> None:
    landscape = ending(0.8, 0.78, rise=0.008)
    found = refine(Search(planted(tmp_path, landscape, images=MANY, budget__hours=2.0, **SMALL)))
    (finding,) = found.findings
    assert (finding.kind, after(found)) == ("still improving", {"budget.epochs": "40"})
    assert "budget.hours" in finding.advice[0]


def leader_was_lucky() -> Landscape:
    """Make the trial that leads the search worse with fresh seeds, and the others as before."""
    firsts: dict[tuple[tuple[str, float], ...], float] = {}

    def landscape(at: At, luck: random.Random) -> Run:
        key = tuple(sorted(at.items()))
        if key in firsts:  # trained again
            return Run(firsts[key] - (0.05 if firsts[key] == max(firsts.values()) else 0.0), 1.0)
        firsts[key] = 0.9 + luck.uniform(0.0, 0.03)
        return Run(firsts[key], 1.0)

    return landscape


def test_the_curves_of_the_finalists_winner_are_read_although_another_trial_led_the_search(
    tmp_path: Path,
) -> None:
    finalists = {"top": 2, "seeds": 3}
    found = refine(Search(planted(tmp_path, leader_was_lucky(), images=MANY, finalists=finalists, **SMALL)))
    best, (leader, *_) = found.summary.best, found.summary.best_first
    assert best is not None
    assert best != leader
    assert [each.kind for each in found.findings] == ["overfit"]
    assert found.findings[0].about.startswith(f"trials {best.id}, ")


def test_few_validation_images_are_reported_with_what_trains_the_best_with_fresh_seeds(
    tmp_path: Path,
) -> None:
    few = Images(train=900, validation=190, test=190)
    found = refine(Search(planted(tmp_path, ending(0.97, 0.93), images=few, **SMALL)))
    (finding,) = found.findings
    assert finding.kind == "noisy"
    assert after(found) == {"data.validation_fraction": "0.3"}
    assert "`finalists: {top: 3, seeds: 3}`" in finding.advice[0]
    assert finding.advice[-1].endswith(" -o best.yaml --verify 3")


def test_a_validation_part_of_the_data_s_own_is_not_made_larger(tmp_path: Path) -> None:
    with_own_parts = Images(train=5_000, validation=190, test=0)
    found = refine(Search(planted(tmp_path, ending(0.97, 0.93), images=with_own_parts, **SMALL)))
    assert [each.kind for each in found.findings] == ["noisy"]
    assert found.study is None


def test_swings_to_the_end_ask_for_averaged_weights_where_the_space_has_them(tmp_path: Path) -> None:
    averaging = {"regularisation.averaging.kind": {"choice": ["none", "ema"]}}
    study = {**SMALL, "space__overrides": {**RANGES, **averaging}}
    found = refine(Search(planted(tmp_path, ending(0.9, 0.87, swing=0.02), images=MANY, **study)))
    best = found.summary.best
    assert best is not None
    assert best.values["regularisation.averaging.kind"] == "none"
    assert [each.kind for each in found.findings] == ["noisy"]
    assert after(found) == {"space.overrides.regularisation.averaging.kind": "none 20%, ema 80%"}


def test_the_noise_of_images_is_not_that_of_pixels(tmp_path: Path) -> None:
    folder = planted(
        tmp_path, ending(0.97, 0.93), images=Images(train=900, validation=190, test=190), **SMALL
    )
    assert isinstance(next(of_noise(Evidence(Search(folder)), set())), SearchFinding)
    facts = folder / FACTS_FILE
    facts.write_text(facts.read_text().replace('"task": "classification"', '"task": "segmentation"'))
    (found,) = of_noise(Evidence(Search(folder)), set())
    assert found == LeftAlone("the best trials' noise", "it is known of images alone, not of pixels")
