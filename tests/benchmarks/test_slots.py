"""The page of the benchmark of slots says what was measured."""

from __future__ import annotations

from slots import bends, page, row, summary


def run(slots: int) -> dict[str, object]:
    waits = {"median": 0.01, "p99": 0.2, "worst": 1.5}
    return {
        "setting": {"slots": slots, "trials": 5000},
        "wall_seconds": 100.0,
        "results": 3000,
        "cpu_seconds": {"driver": 40.0, "decisions": 30.0, "followers": 80.0},
        "waits": dict.fromkeys(("decision", "next epoch", "next trial"), waits),
        "mlflow": {"lag": waits, "at_the_end": 5.0, "caught_up_seconds": 61.2},
    }


def test_a_row_has_rates_shares_waits_and_the_lag() -> None:
    waits = "0.01 / 0.2 / 1.5"
    assert row(run(16)) == (
        f"| 16 | 5,000 | 30 (32) | 40% | 30% | 80% | {waits} | {waits} | {waits} | {waits} | 61 s |\n"
    )


def test_searches_are_in_the_order_of_their_slots() -> None:
    where = {"processor": "", "cores": 2, "threads": 1, "python": "3", "versions": {}, "commit": ""}
    found = page([run(64), run(16)], {**where, "bytecode_compiled": True, "load_before": 0.0, "command": ""})
    assert found.index("| 16 |") < found.index("| 64 |")


def test_a_summary_is_the_median_the_99th_and_the_worst() -> None:
    assert summary([float(each) for each in range(101)]) == {"median": 50.0, "p99": 99.0, "worst": 100.0}


def test_what_few_slots_bend_comes_first() -> None:
    quick, slow = run(16), {**run(64), "results": 6000}
    slow["mlflow"] = {"lag": {"median": 1.0, "p99": 30.0, "worst": 31.0}}
    assert list(bends([quick, slow])) == [
        "- driver and sender together need a processor, or more: from 16 slots on\n",
        "- MLflow is half a minute behind, or more: from 64 slots on\n",
        "- slots give less than nine tenths of their results: from 64 slots on\n",
        "- a decision takes a tenth of an epoch or more, in the median: at none of these\n",
    ]
