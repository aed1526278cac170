"""Tests what helps after a search: in which order, when to stop, and that no hint leads back to itself."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from search.learning.next_steps import since_when_nothing_was_gained
from search.learning.refine import Refined, refine
from search.learning.search import Search
from search.record.folder import Caution, Verified, keep_findings
from search.record.home import FACTS_FILE, FINDINGS_FILE, VERIFICATION_FILE
from search.study import Study
from tests.search.learning.landscapes import BASE, MANY, RANGES, RATE, SMALL, At, after, ending, left, towards
from tests.search.planted_searches import Images, Landscape, Run, planted
from tests.search.reporting.small_reports import VERIFICATION

Call = Callable[..., tuple[int, str, str]]
COPIES = Caution(
    kind="data",
    about="duplicates",
    what="9 validation images are also in train",
    means="scores reward memory",
    do="check --write-exclusions FILE lists them, and data.exclude: FILE leaves them out",
    copies_in="validation",
)


def perfect(at: At, luck: random.Random) -> Run:
    """Make every trial end with next to no mistake."""
    return Run(0.9995 + luck.uniform(0.0, 0.0005), 1.0)


def in_turn(*accuracies: float) -> Landscape:
    """Make trials end like this, one after the other."""
    left = iter(accuracies)

    def landscape(at: At, luck: random.Random) -> Run:
        accuracy = next(left)
        return Run(accuracy, accuracy + 0.02)

    return landscape


def flat(at: At, luck: random.Random) -> Run:
    """Make all trials alike."""
    accuracy = 0.9 + luck.gauss(0.0, 0.0005)
    return Run(accuracy, accuracy + 0.02)


def refined(folder: Path, landscape: Landscape, **values: object) -> Refined:
    return refine(Search(planted(folder, landscape, **{**SMALL, **values})))


def kinds(found: Refined) -> list[str]:
    return [each.kind for each in found.steps]


# --- a ceiling ------------------------------------------------------------------------------------------


def test_at_a_ceiling_a_larger_part_and_another_metric_are_proposed_or_to_stop_and_no_network(
    tmp_path: Path,
) -> None:
    found = refined(tmp_path, perfect)
    assert kinds(found) == ["split", "metric", "stop"]
    assert after(found) == {"data.validation_fraction": "0.3", "objective.metric": "val_loss"}
    assert found.steps[-1].do == "or stop here"
    assert "on 1,500 validation images" in found.steps[-1].why
    assert "nothing was found to be wrong with these images" in found.steps[-1].why
    assert left(found)["ranges, lengths, networks"] == "at a ceiling, differences between trials are luck"


def test_at_a_ceiling_a_part_of_the_data_s_own_is_left_as_it_is(tmp_path: Path) -> None:
    own = Images(train=5_000, validation=190, test=0)
    assert after(refined(tmp_path, perfect, images=own)) == {"objective.metric": "val_loss"}


def test_a_target_of_one_metric_is_not_taken_for_another(tmp_path: Path) -> None:
    found = refined(tmp_path, perfect, budget__target=1.0)
    assert "objective.metric" not in after(found)
    assert "budget.target" in left(found)["objective.metric"]


def test_copies_are_left_out_before_anything_is_done_about_a_ceiling(tmp_path: Path) -> None:
    folder = planted(tmp_path, perfect, **SMALL)
    keep_findings(folder, (COPIES,))
    found = refine(Search(folder))
    assert (kinds(found), found.study) == (["data"], None)
    assert f"tunebook check {folder} --write-exclusions copies.csv`" in found.steps[0].do


def test_at_a_ceiling_images_that_nobody_looked_at_are_looked_at_before_one_stops(tmp_path: Path) -> None:
    folder = planted(tmp_path, perfect, **SMALL)
    (folder / FINDINGS_FILE).unlink()
    found = refine(Search(folder))
    assert kinds(found) == ["data", "split", "metric"]
    assert found.steps[0].do == f"`tunebook check {folder}` looks at the images"
    assert "no look at these images is recorded" in found.steps[0].why


def test_a_few_trials_are_enough_to_see_a_ceiling(tmp_path: Path) -> None:
    assert kinds(refined(tmp_path, perfect, trials=3)) == ["split", "metric", "stop"]


# --- data, and a gap ------------------------------------------------------------------------------------


def test_images_are_mended_before_ranges_and_a_gap_asks_for_images_of_the_test_s_kind(tmp_path: Path) -> None:
    folder = planted(tmp_path, towards(1.3), **SMALL)
    keep_findings(folder, (COPIES,))
    best = Search(folder).best
    assert best is not None
    verified = Verified(trial=best.id, recipe="0" * 12, found=VERIFICATION)
    (folder / VERIFICATION_FILE).write_text(verified.model_dump_json())
    found = refine(Search(folder))
    assert kinds(found)[:3] == ["data", "split", "ranges"]
    assert found.steps[1].do.startswith("mend the images first")


# --- a plateau ------------------------------------------------------------------------------------------


def test_where_the_later_half_gained_nothing_the_answer_is_to_stop(tmp_path: Path) -> None:
    found = refined(tmp_path, flat)
    assert (kinds(found), found.study) == (["stop"], None)
    assert found.steps[0].do == "stop here"
    assert "gained nothing that differs from luck" in found.steps[0].why


def test_trials_that_still_improve_are_no_reason_to_stop(tmp_path: Path) -> None:
    found = refined(tmp_path, ending(0.8, 0.78, rise=0.008), images=MANY)
    assert kinds(found) == ["length"]


def test_where_the_later_half_gained_the_answer_is_more_trials(tmp_path: Path) -> None:
    found = refined(tmp_path, in_turn(*(0.7 + 0.02 * each for each in range(10))), trials=10)
    assert kinds(found) == ["trials"]
    assert found.steps[0].do.endswith("--trials 10")


def test_an_interrupted_search_goes_on_before_it_gets_more_trials(tmp_path: Path) -> None:
    found = refined(tmp_path, towards(0.5), trials=24, last=5)
    assert kinds(found) == ["trials"]
    assert " resume " in found.steps[0].do


@pytest.mark.parametrize(
    ("stored", "expected"),
    [(8, ["stop"]), (128, ["size", "stop"]), (None, ["stop"])],
)
def test_images_that_are_stored_larger_are_proposed_larger(
    stored: int | None, expected: list[str], tmp_path: Path
) -> None:
    folder = planted(tmp_path, flat, **SMALL)
    stored_at(folder, stored)
    found = refine(Search(folder))
    assert kinds(found) == expected
    assert after(found).get("data.image_size") == ("16" if stored == 128 else None)


def test_networks_are_compared_where_images_are_large_and_the_study_names_none(tmp_path: Path) -> None:
    folder = planted(tmp_path, flat, images=Images(side=64), **SMALL)
    stored_at(folder, 64)
    found = refine(Search(folder))
    assert (kinds(found), found.study) == (["network", "stop"], None)
    assert "tunebook backbones digits -o study.yaml" in found.steps[0].do


def stored_at(folder: Path, side: int | None) -> None:
    facts = folder / FACTS_FILE
    text = facts.read_text()
    assert '"stored_side": null' in text or '"stored_side"' not in text
    written = f'"stored_side": {"null" if side is None else side}'
    text = text.replace('"stored_side": null', written)
    if '"stored_side"' not in text:
        text = text.replace('"facts": {', f'"facts": {{{written}, ', 1)
    facts.write_text(text)


def test_a_loss_that_no_later_trial_beats_has_no_noise_to_hide_in(tmp_path: Path) -> None:
    folder = planted(
        tmp_path, in_turn(0.8, 0.9, *8 * [0.8]), trials=10, objective__metric="val_loss", **SMALL
    )
    since = since_when_nothing_was_gained(Search(folder))
    assert since == "trial 1 is the best: the 8 trials after it gained nothing"


# --- hints ----------------------------------------------------------------------------------------------

STATES: dict[str, tuple[Landscape, dict[str, object]]] = {
    "too early": (towards(1.3), {"trials": 7}),
    "ranges": (towards(1.3), {}),
    "healthy": (towards(0.5), {}),
    "flat": (flat, {}),
    "overfit": (ending(0.995, 0.85), {}),
    "underfit": (ending(0.62, 0.62), {}),
    "few images": (ending(0.97, 0.93), {"images": Images(train=900, validation=190, test=190)}),
    "ceiling": (perfect, {}),
    "ceiling of a part of its own": (perfect, {"images": Images(train=5_000, validation=190, test=0)}),
    "interrupted": (towards(0.5), {"last": 9}),
    "pinned": (flat, {"base": {**BASE, "optimizer.lr": 0.1}, "space__overrides": {}}),
}


@pytest.mark.slow("follows the hints of many searches")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_known_of_data", [False, True])
def test_whoever_follows_the_hints_of_a_search_comes_to_its_end(
    state: str, is_known_of_data: bool, tunebook: Call, tmp_path: Path
) -> None:
    landscape, values = STATES[state]
    folder = planted(tmp_path / "searches", landscape, **{**SMALL, **values})
    if is_known_of_data:
        keep_findings(folder, (COPIES,))
    seen: set[str] = set()
    waiting = ["show"]
    while waiting:
        command = waiting.pop()
        assert command not in seen, f"{command} is hinted at again"
        seen.add(command)
        code, out, err = tunebook(command, folder)
        assert code == 0, err
        hinted = set(re.findall(rf"tunebook (\w[\w-]*) {re.escape(str(folder))}", out))
        assert command not in hinted, f"{command} names itself"
        waiting += [each for each in hinted if each in ("refine", "show")]
        if command == "refine":
            assert "show" not in hinted
            numbered = [line for line in out.splitlines() if re.match(r"  \d\. ", line)]
            assert numbered, "refine ends without a step"
            gained = "gained nothing" in tunebook("show", folder)[1]
            assert not (gained and "extend" in hinted), "nothing was gained, and more trials are proposed"


ROUNDS = 6


def by_rate(landscape: Landscape, study: Study) -> Landscape:
    """Let trials go by where their rate is in the first round's range, also where a study's is wider."""
    first, now = RANGES[RATE]["log"], study.space.overrides.get(RATE, RANGES[RATE])["log"]
    decades = math.log10(first[1] / first[0])
    low, width = (math.log10(each) / decades for each in (now[0] / first[0], now[1] / now[0]))

    def same(at: At, luck: random.Random) -> Run:
        return landscape({**at, **({RATE: low + width * at[RATE]} if RATE in at else {})}, luck)

    return same


@pytest.mark.slow("follows what is proposed from one search to the next")
@pytest.mark.parametrize("state", STATES)
def test_whoever_does_what_refine_proposes_may_stop_in_the_end_and_undoes_nothing(
    state: str, tmp_path: Path
) -> None:
    landscape, values = STATES[state]
    asked: dict[str, Any] = {**SMALL, **values}
    changes: list[tuple[str, str]] = []
    for number in range(ROUNDS):
        folder = planted(tmp_path / str(number), landscape, **asked)
        found = refine(Search(folder))
        assert [each.do for each in found.steps if each.kind == "stop"] in ([], [found.steps[-1].do])
        if found.study is not None:
            study = found.study
            changes += after(found).items()
            asked = {name: each for name, each in asked.items() if name in ("trials", "images")}
            asked |= {
                name: study.model_dump(mode="json")[name] for name in ("base", "data", "objective", "space")
            }
            asked |= {"budget__epochs": study.budget.epochs, "seed": study.seed}
            landscape = by_rate(STATES[state][0], study)
        elif found.steps[0].kind == "trials":  # to go on with it, or to draw more
            asked["trials"] = asked.get("trials", 24) + (0 if asked.pop("last", None) else 24)
        else:
            break
    assert found.steps[-1].kind == "stop"
    assert len(set(changes)) == len(changes), "a change is proposed again"


def test_a_network_that_has_not_learnt_enough_may_be_left_so_where_nothing_was_gained(tmp_path: Path) -> None:
    found = refined(tmp_path, STATES["underfit"][0])
    assert kinds(found) == ["split", "length", "ranges", "stop"]


@pytest.mark.slow("extends a search")
def test_a_search_that_was_extended_in_vain_is_not_sent_to_be_extended_again(tmp_path: Path) -> None:
    few = refined(tmp_path / "few", flat, trials=7)
    assert kinds(few) == ["trials"]
    many = refined(tmp_path / "many", flat, trials=24, base=BASE, space__overrides=RANGES)
    assert kinds(many) == ["stop"]
