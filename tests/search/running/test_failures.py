"""Tests that a trial's own crashes and the loss of its machines have budgets of their own."""

from __future__ import annotations

from search.running.failures import Retries


def test_losses_of_machines_use_up_no_retry_of_crashes() -> None:
    retries = Retries(crashes=1, losses=3)
    assert [retries.again(0, "infrastructure") for _ in range(3)] == [True] * 3
    assert retries.again(0, "crash")
    assert not retries.again(0, "crash")
    assert not retries.again(0, "preempted"), "a fourth loss"


def test_each_trial_has_budgets_of_its_own() -> None:
    retries = Retries(crashes=0, losses=1)
    assert not retries.again(0, "crash")
    assert retries.again(1, "preempted")
    assert retries.again(2, "infrastructure")
    assert not retries.again(2, "preempted")
