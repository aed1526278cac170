"""The rules for what a student learns from a teacher; without a teacher there is nothing to vary.

None of the documents speaks of this. The sources are papers, and a measurement in
benchmarks/results/distillation.md.
"""

from __future__ import annotations

from spaces.domains import Float, Values
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.rulings import (
    LONG_RUN,
    SHORT_RUN,
    Distribution,
    Ruling,
    heuristic,
    images_seen,
    rounded,
    share_between,
)

SILENT = "without a teacher: base has no section distillation"
TEMPERATURE = 4.0
HALF, MOST = 0.5, 0.9  # the teacher's shares of the loss in short and in long runs
LARGER = 2.0  # times the student's parameters from which on a teacher counts as larger: ours
# Up to so many images a run gained nothing that was sure from a teacher of 16 times its network's size
# (benchmarks/results/distillation.md)
FEW_IMAGES = 75_420


@heuristic(
    "The temperature is around 4; 1 to 20 is tried.",
    page="distillation.md",
    silent=SILENT,
)
def temperatures(facts: Facts, values: Values) -> Distribution | None:
    if facts.teacher_parameters is None:
        return None
    reason = "2.5 to 4 worked best for small students, and high ones all alike for large ones"
    source = "arXiv 1503.02531, section 3; 2203.08679, section 4; the range is ours"
    return Distribution(Float(1.0, 20.0, log=True), Normal(TEMPERATURE, "medium"), reason, source)


@heuristic(
    "The teacher's answers have half of the loss in short runs, nine tenths in long ones; a tenth to all.",
    page="distillation.md",
    silent=SILENT,
)
def weights(facts: Facts, values: Values) -> Distribution | None:
    if facts.teacher_parameters is None:
        return None
    long = share_between(images_seen(facts), SHORT_RUN, LONG_RUN)
    centre = rounded(HALF + (MOST - HALF) * long)
    reason = f"half in short runs, more where a run sees many images: {images_seen(facts):,} here"
    source = "arXiv 1503.02531, section 4; 2106.05237, section 3; the line between is ours"
    return Distribution(Float(0.1, 1.0), Normal(centre, "low"), reason, source)


@heuristic(
    "The teacher's features have half of the loss; a tenth to nine tenths is tried.",
    page="distillation.md",
    silent=SILENT,
)
def hint_weights(facts: Facts, values: Values) -> Distribution | None:
    if facts.teacher_parameters is None:
        return None
    reason = "half: the head learns from the labels alone, and features teach what is below it"
    source = "arXiv 1412.6550, section 2.2; the share and the range are ours"
    return Distribution(Float(0.1, MOST), Normal(HALF, "low"), reason, source)


def gain_to_expect(facts: Facts) -> Ruling[bool] | None:
    """Return whether a teacher is likely to be worth its time, as far as sizes say; None without one.

    The gain is largest for students that are much smaller than their teacher, though a gap may be too large
    (arXiv 1902.03393, section 3; 1910.01348, section 4), and in long runs (2106.05237, section 3).
    """
    if facts.teacher_parameters is None:
        return None
    times = facts.teacher_parameters / facts.parameters
    size = f"the teacher has {times:.3g} times the student's parameters"
    source = "arXiv 1902.03393, section 3; 2106.05237, section 3; the bound is ours"
    if times < LARGER:
        problem = f"little is to be gained from one of under {LARGER:g} times, unless it knows other images"
        return Ruling(False, f"{size}: {problem}", source)
    if (seen := images_seen(facts)) <= FEW_IMAGES:
        problem = f"runs that see {seen:,} images, as these, gained nothing that differs from luck"
        return Ruling(False, f"{size}, but {problem}", "measured: docs/decisions/0044; arXiv 2106.05237")
    return Ruling(True, f"{size}: the more, and the longer the runs, the more it can gain", source)
