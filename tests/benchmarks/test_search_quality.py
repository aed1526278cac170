"""The benchmark runs what is not kept, and its page says what was asked and what came of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from offline.arms import ARMS, BASELINE, Settings, chosen_arms, digest
from offline.claims import best_peer, claims
from offline.peer_arms import PEERS
from offline.quality_page import draw, page, summary
from offline.tasks import task, task_names
from search_quality import Job, finished, regrets

SHARES = np.arange(0.05, 1.525, 0.05)
SMALL = Settings(trainings=3)
NEW, RIGHT, ADVERSARIAL = "auto+asha", "auto+asha right", "auto+asha adversarial"
PEER = "neps-priorband"


def jobs_of(*arms: str) -> list[Job]:
    return [
        Job(digest(ARMS[arm], "fashion-mnist", SMALL), arm, "fashion-mnist", seed)
        for arm in arms
        for seed in range(2)
    ]


def falling(final: float, seeds: int = 3) -> dict[str, np.ndarray]:
    return {"one": np.tile(np.minimum(final / SHARES, 1.0), (seeds, 1))}


def scattered(*finals: float) -> dict[str, np.ndarray]:
    """One seed a row, each with its own final regret."""
    return {"one": np.concatenate([falling(final, seeds=1)["one"] for final in finals])}


def counted(*arms: str) -> dict[str, list[dict[str, object]]]:
    run = {"trials": 9, "ends": {"finished": 4, "stopped": 3}, "cpu_seconds": 2.4}
    return {arm: [run] for arm in arms}


def met(found: dict[str, dict[str, np.ndarray]]) -> list[tuple[str, str]]:
    return [(each.arm, each.met) for each in claims(found, SHARES)]


def test_runs_that_are_kept_are_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "runs.jsonl"
    first = finished(jobs_of("random"), SMALL, kept, processes=1)
    more = finished(jobs_of("random", "random+asha"), SMALL, kept, processes=1)
    assert {job: more[job] for job in first} == first
    assert "2 runs kept" in capsys.readouterr().err.splitlines()[-2]


def test_a_line_that_was_cut_short_is_run_again(tmp_path: Path) -> None:
    kept = tmp_path / "runs.jsonl"
    whole = finished(jobs_of("random"), SMALL, kept, processes=1)
    kept.write_text(kept.read_text()[:-20])
    again = finished(jobs_of("random"), SMALL, kept, processes=1)
    assert [run["best"] for run in again.values()] == [run["best"] for run in whole.values()]
    assert finished(jobs_of("random"), SMALL, kept, processes=1) == again


@pytest.mark.integration
def test_other_processes_find_the_same(tmp_path: Path) -> None:
    one, two = (
        finished(jobs_of("tpe+asha"), SMALL, tmp_path / f"{count}.jsonl", processes=count) for count in (1, 2)
    )
    assert [run["best"] for run in one.values()] == [run["best"] for run in two.values()]


def test_regret_is_read_at_every_share_for_every_run(tmp_path: Path) -> None:
    jobs = jobs_of("random", BASELINE)
    found = regrets(jobs, finished(jobs, SMALL, tmp_path / "runs.jsonl", 1), SMALL, SHARES)
    for runs in (found["random"]["fashion-mnist"], found[BASELINE]["fashion-mnist"]):
        assert runs.shape == (2, len(SHARES))
        assert (np.diff(runs, axis=1) <= 0).all()
        assert (runs >= 0).all()


def test_a_digest_follows_the_arm_the_task_and_the_settings() -> None:
    arm, name = ARMS[BASELINE], "taskset"
    others = [
        digest(ARMS["qmc+asha"], name, SMALL),
        digest(arm, "fashion-mnist", SMALL),
        digest(arm, name, Settings(trainings=4)),
    ]
    assert digest(arm, name, SMALL) == digest(arm, name, Settings(trainings=3))
    assert digest(arm, name, SMALL) not in others


def test_arms_are_chosen_by_how_their_names_begin_and_the_baseline_is_always_there() -> None:
    assert list(chosen_arms("qmc")) == [BASELINE, "qmc+asha"]
    assert list(chosen_arms("all")) == list(ARMS)
    with pytest.raises(ValueError, match=r"got nope; known: random, random\+asha"):
        chosen_arms("qmc,nope")


def test_peers_are_chosen_by_name_or_all_at_once() -> None:
    assert list(chosen_arms("qmc", peers=True)) == [BASELINE, "qmc+asha", *PEERS]
    assert list(chosen_arms("neps-hyper")) == [BASELINE, "neps-hyperband"]


def test_the_page_says_what_was_asked_and_whether_it_was_met() -> None:
    found = {BASELINE: falling(0.3), PEER: falling(0.1), NEW: falling(0.05), ADVERSARIAL: falling(0.6)}
    told = page(found, counted(*found), SMALL, SHARES)
    assert f"| {NEW} | final regret over that of {BASELINE} | 0.5 | 0.167 (0.167 to 0.167) | yes |" in told
    assert f"| {NEW} | final regret less that of {PEER} | 0 | -0.050 (-0.050 to -0.050) | yes |" in told
    assert "| 0 | 0.550 (0.550 to 0.550) | no |" in told
    assert f"- {ADVERSARIAL}: one" in told
    assert "**Peers** are" in told


def test_what_is_not_among_the_runs_is_not_in_the_tables() -> None:
    found = {BASELINE: falling(0.3), "mutation+asha": falling(0.1)}
    told = page(found, counted(*found), SMALL, SHARES)
    assert "None of the arms of which something is asked is among these." in told
    assert NEW not in told
    assert "**Peers** are" not in told


def test_right_priors_must_have_at_a_third_what_the_best_peer_has_at_the_end() -> None:
    others = {BASELINE: falling(0.3), "smac-multifidelity": falling(0.2), PEER: falling(0.1)}
    assert best_peer(others, SHARES) == PEER
    assert met({**others, RIGHT: falling(0.1 * 0.35)}) == [(RIGHT, "yes")]  # the first share after a third
    assert met({**others, RIGHT: falling(0.05)}) == [(RIGHT, "no")]
    wrong = {**others, f"{PEER} off": falling(0.01)}
    assert best_peer(wrong, SHARES) == PEER


def test_a_claim_is_met_by_its_interval_or_only_on_average() -> None:
    baseline = {BASELINE: scattered(0.4, 0.4, 0.4, 0.4)}
    assert met({**baseline, NEW: scattered(0.1, 0.1, 0.1, 0.2)}) == [(NEW, "yes")]
    assert met({**baseline, NEW: scattered(0.05, 0.1, 0.2, 0.35)}) == [(NEW, "on average")]
    assert met({**baseline, NEW: scattered(0.2, 0.2, 0.2, 0.4)}) == [(NEW, "no")]


def test_wrong_priors_must_not_be_worse_by_an_interval_above_zero() -> None:
    new = {BASELINE: scattered(0.9, 0.9, 0.9, 0.9), NEW: scattered(0.2, 0.2, 0.2, 0.2)}
    assert met({**new, ADVERSARIAL: scattered(0.1, 0.2, 0.3, 0.25)})[-1] == (ADVERSARIAL, "yes")
    assert met({**new, ADVERSARIAL: scattered(0.3, 0.3, 0.25, 0.3)})[-1] == (ADVERSARIAL, "no")


def test_arms_with_fewer_seeds_are_compared_over_the_seeds_that_both_have() -> None:
    found = {BASELINE: scattered(0.4, 0.4, 0.9, 0.9), NEW: scattered(0.1, 0.1)}
    assert [each.figure.value for each in claims(found, SHARES)] == [pytest.approx(0.25)]


def test_the_page_compares_promotion_with_stopping_under_the_same_sampler() -> None:
    found = {BASELINE: falling(0.3), "random+promotion": falling(0.3), "tpe+promotion": falling(0.09)}
    told = page(found, counted(*found), SMALL, SHARES)
    equal = "+0.000 (+0.000 to +0.000)"
    assert f"| random+promotion less random+asha | {equal} | {equal} |" in told
    assert "tpe+promotion less" not in told


@pytest.mark.slow("runs searches")
def test_the_record_and_the_picture_hold_every_arm(tmp_path: Path) -> None:
    found = {name: falling(0.3) for name in (*ARMS, *PEERS, NEW, RIGHT, ADVERSARIAL, "gp+asha")}
    assert set(summary(found, SHARES)["regret"]) == set(found)
    draw(found, SHARES, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.data
@pytest.mark.usefixtures("real_images")
def test_the_surrogates_tasks_give_accuracies_in_per_cent() -> None:
    pytest.importorskip("onnxruntime")
    assert len(task_names()) == 11
    chosen = task("lcbench-189908")  # Fashion-MNIST as a table of pixels
    curves = np.array([each.curve for each in chosen.even_draws(50, seed=0)])
    assert curves.shape == (50, 52)
    assert 0 <= curves.min() < curves.max() <= 100
    assert 85 < curves[:, -1].max() < 95


@pytest.mark.data
@pytest.mark.usefixtures("real_images")
def test_an_unknown_task_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"got 'lcbench-1'; known: lcbench-3945, .*taskset, fashion-mnist"):
        task("lcbench-1")
