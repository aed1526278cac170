"""`tunebook refine`: what is refused, what is told, and what the next study says."""

from __future__ import annotations

import json
import random
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from search.record.folder import read_facts
from search.record.home import EVENTS_FILE
from search.record.journal import Journal, TrialEvent, read
from search.record.lock import locked
from search.refining.draft import Draft
from search.refining.ranges import below, wider, written
from search.refining.refine import Refined, next_name, refined
from search.study import Study, read_study
from search.study.space import build_space
from spaces.domains import Choice, Float, Integer
from tests.search.planted_searches import Images, Landscape, Run, planted
from trainable.errors import UserError
from trainable.recipe import Recipe

Call = Callable[..., tuple[int, str, str]]
At = Mapping[str, float]

RATE, DECAY = "optimizer.lr", "optimizer.weight_decay"
BASE = {"optimizer.kind": "sgd"}
RANGES: dict[str, Any] = {RATE: {"log": [0.01, 1.0]}, DECAY: {"log": [1e-5, 1e-3]}}
SMALL: dict[str, Any] = {"space__name": "quick", "base": BASE, "space__overrides": RANGES}
MANY = Images(train=70_000, validation=15_000, test=15_000)
LARGER = Images(train=70_000, validation=15_000, test=15_000, side=32)


def towards(end: float, name: str = RATE) -> Landscape:
    """Trials are the better the nearer they come to a place, beyond 0 or 1 if it lies there."""

    def landscape(at: At, luck: random.Random) -> Run:
        accuracy = 0.9 - 0.1 * (at.get(name, 0.0) - end) ** 2 + luck.gauss(0.0, 0.002)
        return Run(accuracy, accuracy + 0.03)

    return landscape


def ending(
    train: float, accuracy: float, worse_with: str | None = None, *, rise: float = 0.0, swing: float = 0.0
) -> Landscape:
    """Trials end so, and worse with the last of a field's options if it is named."""

    def landscape(at: At, luck: random.Random) -> Run:
        lost = 0.02 if worse_with is not None and at[worse_with] > 0.5 else 0.0
        lost += 0.02 * (at[RATE] - 0.5) ** 2 + luck.gauss(0.0, 0.001)
        return Run(accuracy - lost, train - lost, rise, swing)

    return landscape


def after(found: Refined) -> dict[str, str]:
    """What stands at each changed place."""
    return {each.path: each.after for each in found.edits}


def left(found: Refined) -> dict[str, str]:
    """Why each thing was left."""
    return {each.about: each.why for each in found.kept}


# --- the command --------------------------------------------------------------------------------------


def test_the_next_study_is_written_with_its_reasons_and_can_be_searched(
    tunebook: Call, tmp_path: Path
) -> None:
    folder = planted(tmp_path / "searches", towards(1.3), **SMALL)
    code, out, err = tunebook("refine", folder, "-o", "study2.yaml")
    assert code == 0, err
    for words in ("edge, optimizer.lr", "upper end", "search space boundaries", "0.01 to 1, log"):
        assert words in out
    text = (tmp_path / "study2.yaml").read_text()
    (line,) = (line for line in text.splitlines() if line.strip().startswith("optimizer.lr:"))
    assert "# was 0.01 to 1, log: the best trial's" in line
    old, new = read_study(folder / "study.yaml"), read_study(tmp_path / "study2.yaml")
    assert new.space.overrides[RATE]["log"] == [0.01, 10.0]
    assert new.space.overrides[RATE]["confidence"] == "medium"
    assert new.space.overrides[DECAY] == RANGES[DECAY]
    assert (new.name, new.seed, new.storage) == ("planted-2", old.seed + 1, old.storage)
    unchanged = {"name", "seed", "space"}
    assert new.model_dump(exclude=unchanged) == old.model_dump(exclude=unchanged)
    facts, info = read_facts(folder)
    (rate, _) = build_space(new, facts, info).dimensions
    assert rate.domain == Float(0.01, 10.0, log=True)
    code, out, err = tunebook("explain", "study2.yaml")
    assert code == 0, err
    assert "within 0.01 to 10, log" in out


def test_a_study_that_may_hold_a_password_is_its_owner_s_alone(tunebook: Call, tmp_path: Path) -> None:
    tunebook("refine", planted(tmp_path / "searches", towards(1.3), **SMALL), "-o", "study2.yaml")
    assert stat.S_IMODE((tmp_path / "study2.yaml").stat().st_mode) == 0o600


def test_without_a_file_nothing_is_written(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(1.3), **SMALL)
    before = set(tmp_path.rglob("*"))
    code, out, _ = tunebook("refine", folder)
    assert code == 0
    assert "-o FILE writes the next study" in out
    assert set(tmp_path.rglob("*")) == before


def test_a_healthy_search_changes_nothing_and_says_what_was_looked_at(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(0.5), **SMALL)
    code, out, _ = tunebook("refine", folder)
    assert code == 0
    assert out.splitlines()[0] == "nothing to change: no study was written"
    for words in ("0 findings", "% of 0.01 to 1, log", "healthy"):
        assert words in out


def test_a_script_that_asks_for_a_study_is_told_by_the_exit_code_that_there_is_none(
    tunebook: Call, tmp_path: Path
) -> None:
    folder = planted(tmp_path / "searches", towards(0.5), **SMALL)
    code, out, _ = tunebook("refine", folder, "-o", "study2.yaml")
    assert code == 1
    assert out.splitlines()[0] == "nothing to change: no study was written"
    assert not (tmp_path / "study2.yaml").exists()
    code, out, _ = tunebook("refine", folder, "-o", "study2.yaml", "--json")
    assert (code, json.loads(out)["out"], json.loads(out)["study"]) == (1, None, None)


def test_the_hint_after_nothing_to_change_can_be_typed_as_it_is(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(0.5), **SMALL)
    seed = read_study(folder / "study.yaml").seed
    _, out, _ = tunebook("refine", folder)
    assert out.endswith(
        f"tunebook search {folder}/study.yaml --name planted-2 --trials 24 --set seed={seed + 1}\n"
    )


def test_a_few_trials_are_too_early(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(1.3), trials=7, **SMALL)
    code, out, _ = tunebook("refine", folder, "-o", "study2.yaml")
    assert code == 1
    assert "too early" in out
    assert "7 trials ended" in out
    assert not (tmp_path / "study2.yaml").exists()


def test_an_interrupted_search_is_judged_by_the_trials_that_ended(tmp_path: Path) -> None:
    found = refined(planted(tmp_path, towards(1.3), trials=90, last=24, **SMALL))
    assert found.judged == 24
    assert list(after(found)) == [f"space.overrides.{RATE}"]


def test_the_audit_in_json_has_every_field_that_is_promised(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(1.3), **SMALL)
    code, out, _ = tunebook("refine", folder, "-o", "study2.yaml", "--json")
    tree = json.loads(out)
    assert code == 0
    assert tree.keys() == {
        "schema", "search", "trials", "findings", "changes", "left_alone", "study", "out",
    }  # fmt: skip
    assert (tree["schema"], tree["search"], tree["trials"], tree["out"]) == (1, "planted", 24, "study2.yaml")
    (finding,), (change,) = tree["findings"], tree["changes"]
    assert finding.keys() == {"kind", "about", "seen", "rule", "source", "advice"}
    assert (finding["kind"], finding["about"]) == ("edge", RATE)
    assert change["path"] == f"space.overrides.{RATE}"
    assert change["before"] == "0.01 to 1, log"
    assert {"about", "why"} == set().union(*tree["left_alone"])
    assert Study.from_tree(tree["study"]) == read_study(tmp_path / "study2.yaml")


def test_a_file_that_exists_is_not_written_over(tunebook: Call, tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", towards(1.3), **SMALL)
    (tmp_path / "study2.yaml").write_text("mine\n")
    code, _, err = tunebook("refine", folder, "-o", "study2.yaml")
    assert code == 2
    assert "study2.yaml: exists" in err
    assert (tmp_path / "study2.yaml").read_text() == "mine\n"


def test_a_folder_without_a_search_is_refused(tunebook: Call, tmp_path: Path) -> None:
    code, _, err = tunebook("refine", tmp_path, "-o", "study2.yaml")
    assert code == 2
    assert "not a search folder" in err


def test_a_search_of_which_no_trial_finished_is_refused(tmp_path: Path) -> None:
    folder = planted(tmp_path, lambda at, luck: Run(0.5, 0.5, diverges=True), trials=9, **SMALL)
    with pytest.raises(UserError, match="no trial has finished"):
        refined(folder)


def test_a_running_search_is_refused(tmp_path: Path) -> None:
    folder = planted(tmp_path, towards(1.3), trials=9, last=8, **SMALL)
    lines = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(lines[:-1]))
    with locked(folder), pytest.raises(UserError, match="is running"):
        refined(folder)


def test_what_was_searched_is_read_from_the_journal_whatever_the_study_says_now(tmp_path: Path) -> None:
    folder = planted(tmp_path, towards(1.3), **SMALL)
    before = refined(folder)
    other = read_study(folder / "study.yaml").with_values({"space.overrides": {}})
    other.write(folder)
    assert refined(folder).findings == before.findings != ()


# --- ranges -------------------------------------------------------------------------------------------


def test_a_variant_s_range_takes_the_place_of_what_was_believed_of_all(tmp_path: Path) -> None:
    kinds = {"optimizer.kind": {"choice": ["sgd", "adamw"]}, RATE: {"prior": 0.3, "confidence": "low"}}
    name = f"{RATE}[sgd]"
    folder = planted(tmp_path, towards(1.3, name), trials=40, space__name="quick", space__overrides=kinds)
    found = refined(folder)
    assert found.study is not None
    overrides = found.study.space.overrides
    assert list(overrides) == ["optimizer.kind", name, f"{RATE}[adamw]"]
    assert overrides[name]["log"][1] > 47.0
    assert overrides[f"{RATE}[adamw]"] == kinds[RATE]


def test_a_variant_s_own_range_is_replaced_and_its_neighbours_stay(tmp_path: Path) -> None:
    sgd, adamw = (f"{RATE}[{kind}]" for kind in ("sgd", "adamw"))
    kinds = {
        sgd: {"log": [0.01, 1.0]},
        "optimizer.kind": {"choice": ["sgd", "adamw"]},
        adamw: {"log": [0.001, 0.1]},
    }
    folder = planted(tmp_path, towards(1.3, sgd), trials=32, space__name="quick", space__overrides=kinds)
    found = refined(folder)
    assert [each.field for each in found.edits] == [sgd]
    assert found.study is not None
    overrides = found.study.space.overrides
    assert list(overrides) == list(kinds)
    assert overrides[sgd]["log"] == [0.01, 10.0]
    assert {name: overrides[name] for name in kinds if name != sgd} == {
        name: kinds[name] for name in kinds if name != sgd
    }


def test_the_rules_of_the_other_variants_stay_where_one_variant_gets_a_range(tmp_path: Path) -> None:
    kinds: dict[str, Any] = {"optimizer.kind": {"choice": ["sgd", "adamw", "lamb"]}, DECAY: {"rule": True}}
    name = f"{DECAY}[sgd]"
    folder = planted(tmp_path, towards(0.5), trials=4, space__name="quick", space__overrides=kinds)
    facts, info = read_facts(folder)
    draft = Draft(read_study(folder / "study.yaml"), facts, info)
    changed = draft.changed(f"space.overrides.{name}", {"log": [1e-6, 1e-2]})
    overrides = changed.study.space.overrides
    assert overrides == {
        "optimizer.kind": kinds["optimizer.kind"],
        name: {"log": [1e-6, 1e-2]},
        f"{DECAY}[adamw]": {"rule": True},
        f"{DECAY}[lamb]": {"rule": True},
    }
    assert {each.name for each in changed.space.dimensions} == {each.name for each in draft.space.dimensions}


def beyond(rate: float) -> Landscape:
    """Trials are the better the nearer they come to the upper end, and the first one is best of all."""

    def landscape(at: At, luck: random.Random) -> Run:
        run = towards(1.3)(at, luck)
        best = at[RATE] >= 1.0 - 1e-9
        return Run(run.accuracy + 0.02 * best, run.train + 0.02 * best)

    return landscape


@pytest.mark.parametrize(
    ("own", "expected"), [(0.29, [0.001, 1.0]), (3.0, [0.001, 3.0]), (0.123456, [0.001, 1.0])]
)
def test_a_best_value_beyond_an_end_counts_as_at_that_end_and_is_included(
    tmp_path: Path, own: float, expected: list[float]
) -> None:
    study = {**SMALL, "space__overrides": {RATE: {"log": [0.001, 0.1]}}}
    folder = planted(tmp_path, beyond(own), **study)
    moved(folder, own)
    found = refined(folder)
    assert found.summary.best is not None
    assert (found.summary.best.id, found.summary.best.values[RATE]) == (0, own)
    assert [(each.kind, each.about) for each in found.findings] == [("edge", RATE)]
    assert "outside of 0.001 to 0.1" in found.findings[0].seen
    assert found.study is not None
    assert found.study.space.overrides[RATE]["log"] == expected
    assert found.study.space.overrides[RATE]["prior"] == float(f"{own:.3g}")


def moved(folder: Path, own: float) -> None:
    """The journal with another rate in the documents' own recipe."""
    events = read(folder / EVENTS_FILE)
    (folder / EVENTS_FILE).unlink()
    with Journal(folder) as journal:
        for event in events:
            journal.append(with_rate(event, own) if isinstance(event, TrialEvent) and event.own else event)


def with_rate(event: TrialEvent, rate: float) -> TrialEvent:
    recipe = Recipe.from_tree(event.recipe or {}).with_values({RATE: rate})
    values = {**event.values, RATE: rate}
    return event.model_copy(update={"values": values, "recipe": recipe.tree(), "digest": recipe.digest()})


def test_a_best_value_beyond_an_end_without_a_trend_towards_it_is_left(tmp_path: Path) -> None:
    study = {**SMALL, "space__overrides": {RATE: {"log": [0.001, 0.1]}}}

    def landscape(at: At, luck: random.Random) -> Run:
        best = at[RATE] >= 1.0 - 1e-9
        return Run(0.8 + 0.05 * best + luck.gauss(0.0, 0.002), 0.85)

    found = refined(planted(tmp_path, landscape, **study))
    assert found.edits == ()
    assert "may be luck: luck alone shows as much in" in left(found)[RATE]


def test_a_rule_that_the_trials_contradict_is_named_where_nothing_is_changed_for_it(tmp_path: Path) -> None:
    wrong = {"log": [0.01, 1.0], "prior": 0.01, "confidence": "medium"}
    study = {**SMALL, "space__overrides": {**RANGES, RATE: wrong}}
    found = refined(planted(tmp_path, towards(0.6), trials=40, sampler__kind="qmc", **study))
    assert f"space.overrides.{RATE}" not in after(found)
    assert "the trials contradict what is believed of it (around 0.01" in left(found)[RATE]


def test_a_loss_is_better_towards_the_end_where_it_is_lower(tmp_path: Path) -> None:
    found = refined(planted(tmp_path, towards(1.3), objective__metric="val_loss", **SMALL))
    assert [(each.kind, each.about) for each in found.findings] == [("edge", RATE)]
    assert "upper end" in found.findings[0].seen


def test_a_range_grows_only_as_far_as_a_recipe_allows(tmp_path: Path) -> None:
    momentum = "optimizer.momentum"
    study = {**SMALL, "space__overrides": {**RANGES, momentum: {"uniform": [0.8, 0.98]}}}
    found = refined(planted(tmp_path, towards(1.3, momentum), **study))
    assert found.study is not None
    assert found.study.space.overrides[momentum]["uniform"] == [0.8, 0.991]


def test_a_range_that_no_recipe_lets_grow_is_left(tmp_path: Path) -> None:
    smoothing = "regularisation.label_smoothing"
    study = {**SMALL, "space__overrides": {**RANGES, smoothing: {"uniform": [0.0, 0.2]}}}
    found = refined(planted(tmp_path, towards(-0.3, smoothing), **study))
    assert found.findings == ()
    assert found.study is None
    assert "is refused" in left(found)[smoothing]


def test_two_findings_on_one_range_make_one_change(tmp_path: Path) -> None:
    def landscape(at: At, luck: random.Random) -> Run:
        run = towards(-0.3)(at, luck)
        return Run(run.accuracy, run.train, diverges=at[RATE] > 0.6)

    found = refined(planted(tmp_path, landscape, **SMALL))
    assert [each.kind for each in found.findings] == ["diverged", "edge"]
    (edit,) = found.edits
    assert edit.before == "0.01 to 1, log"
    assert found.study is not None
    low, high = found.study.space.overrides[RATE]["log"]
    assert 0.001 <= low < 0.005
    assert 0.05 < high < 0.2


def test_good_trials_among_those_that_diverged_keep_their_rates(tmp_path: Path) -> None:
    def landscape(at: At, luck: random.Random) -> Run:
        run = towards(0.95)(at, luck)
        return Run(run.accuracy, run.train, diverges=at[RATE] > 0.6 and luck.random() < 0.6)

    found = refined(planted(tmp_path, landscape, trials=32, **SMALL))
    assert [(each.kind, each.about) for each in found.findings] == [("diverged", "trials")]
    assert "regularisation.clipping.kind" in {each.field for each in found.edits}


@pytest.mark.parametrize(
    ("domain", "end", "expected"),
    [
        (Float(0.01, 1.0, log=True), "upper", [10.0, 3.16, 1.78, 1.33]),
        (Float(0.01, 1.0, log=True), "lower", [0.001, 0.00316, 0.00562, 0.0075]),
        (Float(1e-6, 1.0, log=True), "upper", [10.0, 3.16, 1.78, 1.33]),
        (Float(0.0, 0.2), "upper", [0.3, 0.25, 0.225, 0.213]),
        (Float(0.0, 0.2), "lower", [-0.1, -0.05, -0.025, -0.0125]),
        (Integer(5, 15), "upper", [20, 18, 17, 16]),
        (Integer(1, 3, log=True), "lower", []),
        (Integer(32, 256, log=True), "upper", [725, 431, 332, 292]),
    ],
)
def test_a_range_grows_at_one_end_by_half_its_length_at_most(
    domain: Float | Integer, end: Any, expected: list[float]
) -> None:
    grown = wider(domain, end)
    moved = [each.high if end == "upper" else each.low for each in grown]
    others = {each.low if end == "upper" else each.high for each in grown}
    assert moved == expected
    assert others <= {domain.low if end == "upper" else domain.high}


def test_a_cut_range_keeps_the_value_that_it_is_cut_at() -> None:
    assert below(Float(0.001, 1.0, log=True), 0.12345).high == 0.124
    assert below(Float(0.001, 0.1234, log=True), 0.12335).high == 0.1234


@pytest.mark.parametrize(
    ("domain", "value", "expected"),
    [
        (Float(0.1, 1.0, log=True), 0.2, {"log": [0.1, 1.0], "prior": 0.2, "confidence": "medium"}),
        (Float(0.1, 1.0), 2.0, {"uniform": [0.1, 1.0]}),
        (Integer(1, 9), 3, {"int": [1, 9], "prior": 3, "confidence": "medium"}),
        (Choice((None, 0.5)), None, {"choice": [None, 0.5], "prior": None, "confidence": "medium"}),
    ],
)
def test_a_range_is_written_with_what_is_believed_within_it(
    domain: Any, value: Any, expected: dict[str, Any]
) -> None:
    assert written(domain, value) == expected


# --- curves and noise ---------------------------------------------------------------------------------


def test_an_overfit_net_is_expected_to_want_more_regularisation_of_two_new_kinds_at_once(
    tmp_path: Path,
) -> None:
    found = refined(planted(tmp_path, ending(0.995, 0.85), images=LARGER, **SMALL))
    assert [each.kind for each in found.findings] == ["overfit"]
    places = after(found)
    assert "around" in places[f"space.overrides.{DECAY}"]
    new = {"augmentation.policy.kind", "regularisation.label_smoothing"}
    assert places.keys() == {f"space.overrides.{name}" for name in (DECAY, *new)}
    assert "randaugment 57%" in places["space.overrides.augmentation.policy.kind"]
    waits = (
        "null -> 0.2 waits for the next round: augmentation.policy.kind and regularisation.label_smoothing"
    )
    assert left(found)["model.dropout"].startswith(waits)


def test_what_the_rules_leave_out_for_tiny_images_and_nets_is_not_proposed(tmp_path: Path) -> None:
    found = refined(planted(tmp_path, ending(0.995, 0.85), images=MANY, **SMALL))
    changed = {each.field for each in found.edits}
    assert changed == {DECAY, "regularisation.label_smoothing", "model.dropout"}
    for name, why in {
        "policy": "under 24 px, where the operations destroy the object",
        "masking": "under 24 px",
        "crop": "under 16",
        "mixing": "one of none, mixup; images mixed in 7 of 10 trials at ResNet50 size",
    }.items():
        told = left(found)[f"augmentation.{name}.kind"]
        assert "but the rule leaves it out: " in told
        assert why in told


def test_what_a_person_offers_may_be_proposed_whatever_the_rules_say(tmp_path: Path) -> None:
    policy = "augmentation.policy.kind"
    study = {**SMALL, "space__overrides": {**RANGES, policy: {"choice": ["none", "randaugment"]}}}
    best_without = ending(0.995, 0.85, policy)
    found = refined(planted(tmp_path, best_without, images=MANY, **study))
    assert "trials are better the other way: luck alone" in left(found)[policy]


def test_dropout_is_switched_off_as_its_options_spell_it(tmp_path: Path) -> None:
    dropout = "model.dropout"
    study = {**SMALL, "space__overrides": {**RANGES, dropout: {"choice": [None, 0.2]}}}

    def landscape(at: At, luck: random.Random) -> Run:
        run = ending(0.62, 0.62)(at, luck)
        return run if at[dropout] > 0.5 else Run(run.accuracy - 0.01, run.train - 0.01)

    found = refined(planted(tmp_path, landscape, images=MANY, trials=12, **study))
    assert [each.kind for each in found.findings] == ["underfit"]
    assert left(found)[dropout].startswith("0.2 -> null (all of the net, all of the time) was considered")


def test_an_underfit_net_trains_longer_and_is_held_back_less(tmp_path: Path) -> None:
    study = {**SMALL, "base": {**BASE, "augmentation.policy.kind": "randaugment"}}
    found = refined(planted(tmp_path, ending(0.62, 0.62), images=MANY, **study))
    assert [each.kind for each in found.findings] == ["underfit"]
    assert after(found)["budget.epochs"] == "40"
    assert "the study fixes it" in left(found)["augmentation.policy.kind"]


def test_what_the_trials_speak_against_is_left(tmp_path: Path) -> None:
    smoothing = "regularisation.label_smoothing"
    study = {**SMALL, "space__overrides": {**RANGES, smoothing: {"choice": [0.0, 0.1]}}}
    plain = refined(planted(tmp_path / "plain", ending(0.995, 0.85), images=MANY, **study))
    worse = refined(planted(tmp_path / "worse", ending(0.995, 0.85, smoothing), images=MANY, **study))
    assert {each.kind for each in (*plain.findings, *worse.findings)} == {"overfit"}
    assert "trials are better the other way" in left(worse)[smoothing]
    assert "trials are better the other way" not in left(plain).get(smoothing, "")


def test_trials_that_still_rise_get_twice_the_epochs(tmp_path: Path) -> None:
    landscape = ending(0.8, 0.78, rise=0.008)
    found = refined(planted(tmp_path, landscape, images=MANY, budget__hours=2.0, **SMALL))
    (finding,) = found.findings
    assert (finding.kind, after(found)) == ("still improving", {"budget.epochs": "40"})
    assert "budget.hours" in finding.advice[0]


def test_few_validation_images_are_told_with_the_commands_that_repeat_the_best(tmp_path: Path) -> None:
    few = Images(train=900, validation=190, test=190)
    found = refined(planted(tmp_path, ending(0.97, 0.93), images=few, **SMALL))
    (finding,) = found.findings
    assert finding.kind == "noisy"
    assert after(found) == {"data.validation_fraction": "0.3"}
    assert sum("tunebook export" in line and "--set loop.seed=$seed" in line for line in finding.advice) == 3


def test_a_validation_part_that_the_data_bring_is_not_made_larger(tmp_path: Path) -> None:
    brought = Images(train=5_000, validation=190, test=0)
    found = refined(planted(tmp_path, ending(0.97, 0.93), images=brought, **SMALL))
    assert [each.kind for each in found.findings] == ["noisy"]
    assert found.study is None


def test_swings_to_the_end_ask_for_averaged_weights_where_the_space_has_them(tmp_path: Path) -> None:
    averaging = {"regularisation.averaging.kind": {"choice": ["none", "ema"]}}
    study = {**SMALL, "space__overrides": {**RANGES, **averaging}}
    found = refined(planted(tmp_path, ending(0.9, 0.87, swing=0.02), images=MANY, seed=1, **study))
    best = found.summary.best
    assert best is not None
    assert best.values["regularisation.averaging.kind"] == "none"
    assert [each.kind for each in found.findings] == ["noisy"]
    assert after(found) == {"space.overrides.regularisation.averaging.kind": "none 20%, ema 80%"}


# --- the next study -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "taken", "expected"),
    [
        ("digits", [], "digits-2"),
        ("digits", ["digits", "digits-2"], "digits-3"),
        ("digits-2", ["digits-2"], "digits-3"),
        ("digits-20260101-101010", [], "digits-20260101-101011"),
        ("a" * 100, [], "a" * 98 + "-2"),
    ],
)
def test_the_next_name_is_the_first_free_one(name: str, taken: list[str], expected: str) -> None:
    assert next_name(name, taken) == expected


def test_a_change_that_makes_no_search_is_refused(tmp_path: Path) -> None:
    folder = planted(tmp_path, towards(0.5), trials=2, **SMALL)
    facts, info = read_facts(folder)
    draft = Draft(read_study(folder / "study.yaml"), facts, info)
    with pytest.raises(UserError, match=r"optimizer\.momentum"):
        draft.changed("space.overrides.optimizer.momentum", {"uniform": [0.9, 1.5]})
    with pytest.raises(UserError, match="training images"):
        draft.changed("space.overrides.loop.batch_size", {"int": [16, 8_000]})
    with pytest.raises(UserError, match=r"budget\.epochs"):
        draft.changed("budget.epochs", 0)
