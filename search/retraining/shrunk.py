"""What pruning a network lost, how sure that is, and what it spared: as data, as tables, in sentences.

A difference between two networks has an interval of 95 %: Student's t with Satterthwaite's degrees of
freedom, over the deviation between the seeds of the fine-tuning and that of the images. The latter is of a
bootstrap that draws the same images for both networks: what is easy for one is mostly easy for the other.

Two seeds may score the same by chance, and that is no evidence that training has no luck. So the variance
between the seeds of a network is at least what the images at which they differ would give it, were each of
them right or wrong by its own luck; and of a share of n images at least (1/n)^2/12, the variance of what is
lost by counting whole images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any, Literal

import numpy as np

from search.record.finals import LEVEL, error_of_sum, student
from search.reporting.tables import TextTable
from trainable.data import Split
from trainable.recipe.metrics import NO_SPREAD
from trainable.shrinking.latency import Ratio, ratio_of
from trainable.shrinking.shrink import DISTILLED, PRUNED, SCRATCH, TUNED, UNPRUNED, Shrunk
from trainable.training.bootstrap import RESAMPLES, resampled_scores
from trainable.training.evaluate import Array, Scores
from trainable.training.extra_metrics import ExtraMetrics, make_extra_metrics
from trainable.training.metrics import OBJECTIVES, SHARES, sign_of, wilson_interval
from trainable.training.run import PREFIXES

SCHEMA = 1
ShrunkVerdict = Literal["lost", "gained", "no sure difference"]


@dataclass(frozen=True)
class ScoreDifference:
    """By how much a network's mean score is above another's, and its interval."""

    mean: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether seeds or images leave a spread that says how sure the difference is."""
        return self.high - self.low > NO_SPREAD

    @property
    def sure(self) -> bool:
        """Whether the interval does not hold 0."""
        return self.known and not self.low <= 0.0 <= self.high

    def __str__(self) -> str:
        how_sure = f"{self.low:+.4f} to {self.high:+.4f}" if self.known else "no spread, so no interval"
        return f"{self.mean:+.4f} ({how_sure})"

    def tree(self) -> dict[str, float]:
        return {"difference": self.mean, "low": self.low, "high": self.high}


def difference(
    ours: Sequence[Scores], theirs: Sequence[Scores], metric: str, extra: ExtraMetrics, seed: int
) -> ScoreDifference:
    """Return the difference in a metric, such as `accuracy`, between networks trained with several seeds,
    scored on the same images.

    Where no resample of the images changes a difference in shares, its half width is at least Wilson's upper
    bound of the share of images at which the networks differ and none was seen.
    """
    of_images, parts = [], []
    for side in (ours, theirs):
        resampled = _resampled(side, metric, extra, seed)
        if len(side) > 1:
            parts.append((_variance_of_seeds(side, metric, resampled) / len(side), float(len(side) - 1)))
        if resampled is not None:
            of_images.append(resampled.mean(axis=0))
    if len(of_images) == 2:
        parts.append((float(np.var(of_images[0] - of_images[1])), np.inf))
    error, freedom = error_of_sum(*parts)
    means = [fmean(each.by_name()[metric] for each in side) for side in (ours, theirs)]
    half = student(freedom) * error
    if half <= NO_SPREAD and f"val_{metric}" in SHARES:
        half = wilson_interval(0, ours[0].images)[1]
    return ScoreDifference(means[0] - means[1], means[0] - means[1] - half, means[0] - means[1] + half)


def _resampled(side: Sequence[Scores], metric: str, extra: ExtraMetrics, seed: int) -> Array | None:
    """Return a metric of resamples of the images, [seeds, resamples], the same images for each seed; None
    without their answers."""
    resampled = [resampled_scores(each, extra, seed) for each in side]
    values = [each.metrics[metric] for each in resampled if each is not None and metric in each.metrics]
    return np.stack(values) if len(values) == len(side) else None


def _variance_of_seeds(side: Sequence[Scores], metric: str, resampled: Array | None) -> float:
    """Return the variance of one training's score, estimated from two seeds or more.

    Resamples of the same images have seeds differ by the images at which these differ: half the variance of
    the difference between two is that of one score whose images have their own luck each.
    """
    variances = [variance(each.by_name()[metric] for each in side)]
    if resampled is not None:
        around = resampled - resampled.mean(axis=1, keepdims=True)
        variances.append(float(around.var(axis=0, ddof=1).mean()))
    if f"val_{metric}" in SHARES and side[0].by_image is None:
        variances.append(1.0 / side[0].images ** 2 / 12.0)
    return max(variances)


@dataclass(frozen=True, eq=False)
class ShrunkComparison:
    """A shrunk network's differences from the whole one, and from others with the same layers."""

    shrunk: Shrunk
    asked: float  # the share of the operations that was asked for
    # of each network, by its name and a part, from the unpruned one
    differences: Mapping[tuple[str, Split], ScoreDifference]
    # of the distilled network from the one that was fine-tuned by the recipe alone, if one was distilled
    without_teacher: Mapping[Split, ScoreDifference]
    # of the kept network from the one that was trained from new weights, if it was
    from_scratch: Mapping[Split, ScoreDifference]
    # by batch, the latency of the pruned network over that of the unpruned one
    latency_ratios: Mapping[int, Ratio]

    @property
    def metric(self) -> str:
        """The metric by which it is judged, such as `val_accuracy`."""
        return self.shrunk.metric

    @property
    def of_part(self) -> Split:
        """The part that decides: the test part, if it was scored."""
        return self.shrunk.parts[-1]

    @property
    def verdict(self) -> ShrunkVerdict:
        """What the kept network is against the unpruned one."""
        return self._verdict(self.differences[self.shrunk.kept, self.of_part])

    def _verdict(self, found: ScoreDifference) -> ShrunkVerdict:
        if not found.sure:
            return "no sure difference"
        return "gained" if sign_of(OBJECTIVES[self.metric]) * found.mean > 0.0 else "lost"

    def words(self) -> str:
        """Return in sentences whether the pruned network lost, what teaching gained, and what it spares."""
        kept, name = self.shrunk.kept, self._named(self.of_part)
        from_unpruned = self.differences[kept, self.of_part]
        before, after = self.shrunk.costs[UNPRUNED], self.shrunk.costs[PRUNED]
        times = ", ".join(f"{each} of it for {batch}" for batch, each in self.latency_ratios.items())
        shown = "windows" if self.shrunk.trained.data.info.task.windowed else "images"
        lines = [
            f"With {self.shrunk.pruned.share:.1%} of the operations, {len(self.shrunk.tuned)} seeds: "
            f"{self._judged('it', from_unpruned)}: {name} differs by {from_unpruned} from the unpruned "
            "network's.",
            f"Parameters {after.parameters / before.parameters:.1%}, latency {times} {shown} at once.",
        ]
        if (other := self.without_teacher.get(self.of_part)) is not None:
            lines.append(
                f"Against the fine-tuning without this teacher, {self._judged('distillation', other)}: "
                f"{name} differs by {other}."
            )
        if (other := self.from_scratch.get(self.of_part)) is not None:
            lines.append(f"Against the same layers trained from new weights, {name} differs by {other}.")
        return " ".join(lines)

    def _judged(self, subject: str, found: ScoreDifference) -> str:
        verdict = self._verdict(found)
        if verdict == "no sure difference":
            return "no difference that chance does not explain"
        return f"{subject} {verdict}, by more than chance explains"

    def _named(self, part: Split) -> str:
        return f"{PREFIXES[part]}_{self.metric.removeprefix('val_')}"

    def scores_table(self) -> TextTable:
        """Return a row for each network: its mean scores, and how they differ from the unpruned one's."""
        parts = self.shrunk.parts
        heads = [head for part in parts for head in (self._named(part), f"{PREFIXES[part]} difference")]
        rows = tuple((name, *self._scores(name)) for name in self.shrunk.scores)
        caption = (
            f"differences from the unpruned network, with {LEVEL:.0%} intervals: the luck of the "
            "fine-tuning's seeds and of the images is in them, that of the one training before is not; "
            f"{PRUNED}: as it was cut, with the BatchNorm statistics of the unpruned network"
        )
        return TextTable("", ("network", *heads), rows, whole=set(heads), caption=caption)

    def _scores(self, name: str) -> Iterator[str]:
        for part in self.shrunk.parts:
            yield f"{fmean(_values(self.shrunk, name, part, self.metric)):.4f}"
            yield str(self.differences[name, part]) if name != UNPRUNED else ""

    def costs_table(self) -> TextTable:
        """Return a row for the unpruned network, and one for the pruned, which costs the same fine-tuned."""
        batches = [
            head
            for batch in self.shrunk.costs[UNPRUNED].latencies
            for head in (f"ms for {batch}", f"ratio for {batch}")
        ]
        heads = ("parameters", "operations", *batches, "MB")
        rows = tuple((name, *self._costs(name)) for name in self.shrunk.costs)
        caption = (
            "latencies: median of passes taken in turns (5 to 95 % of them); ratios: of the medians, with "
            f"{LEVEL:.0%} intervals of the turns"
        )
        return TextTable("", ("network", *heads), rows, whole=set(heads), caption=caption)

    def _costs(self, name: str) -> Iterator[str]:
        """Yield what a network costs, as cells of a table."""
        cost = self.shrunk.costs[name]
        yield f"{cost.parameters:,}"
        yield f"{cost.flops:,}"
        for batch, each in cost.latencies.items():
            low, high = each.bounds_ms
            yield f"{each.median_ms:.2f} ({low:.2f} to {high:.2f})"
            yield str(self.latency_ratios[batch]) if name != UNPRUNED else ""
        yield f"{cost.file_bytes / 1e6:.2f}"

    def tree(self) -> dict[str, Any]:
        """Return plain data: what `--json` prints and `metrics.json` holds."""
        shrunk = self.shrunk
        return {
            "schema": SCHEMA,
            "recipe": shrunk.recipe.digest(),
            "of_recipe": shrunk.trained.recipe.digest(),
            "metric": self.metric,
            "operations": {"asked": self.asked, "left": shrunk.pruned.share},
            "verdict": self.verdict,
            "words": self.words(),
            "level": LEVEL,
            "resamples": RESAMPLES,
            "seeds": [each.seed for each in shrunk.tuned],
            "best_seed": shrunk.best.seed,
            "kept": shrunk.kept,
            "networks": {name: self._network(name) for name in shrunk.scores},
            "without_teacher": {
                self._named(part): each.tree() for part, each in self.without_teacher.items()
            },
            "from_scratch": {self._named(part): each.tree() for part, each in self.from_scratch.items()},
        }

    def _network(self, name: str) -> dict[str, Any]:
        shrunk = self.shrunk
        cost = shrunk.costs[UNPRUNED if name == UNPRUNED else PRUNED]
        from_unpruned = {part: self.differences.get((name, part)) for part in shrunk.parts}
        return {
            "scores": {
                f"{PREFIXES[part]}_{metric}": _values(shrunk, name, part, metric)
                for part in shrunk.parts
                for metric in shrunk.scores[name][0][part].by_name()
            },
            "differences": {
                self._named(part): each.tree() for part, each in from_unpruned.items() if each is not None
            },
            "parameters": cost.parameters,
            "flops": cost.flops,
            "file_bytes": cost.file_bytes,
            "latencies": {str(batch): each.tree() for batch, each in cost.latencies.items()},
            "latency_ratios": {
                str(batch): each.tree() for batch, each in self.latency_ratios.items() if name != UNPRUNED
            },
        }


def compared(shrunk: Shrunk, asked: float) -> ShrunkComparison:
    """Return how a shrunk network and the one that it was made of differ, by the metric of the former."""
    info, recipe, scores = shrunk.trained.data.info, shrunk.trained.recipe, shrunk.scores
    extra = make_extra_metrics(recipe.evaluation.metrics, {}, info.classes)
    kind = shrunk.metric.removeprefix("val_")

    def between(ours: str, theirs: str, part: Split) -> ScoreDifference:
        sides = [[each[part] for each in scores[name]] for name in (ours, theirs)]
        return difference(sides[0], sides[1], kind, extra, recipe.loop.seed)

    others = [name for name in scores if name != UNPRUNED]
    differences = {(name, part): between(name, UNPRUNED, part) for name in others for part in shrunk.parts}
    untaught = {part: between(DISTILLED, TUNED, part) for part in shrunk.parts if DISTILLED in scores}
    anew = {part: between(shrunk.kept, SCRATCH, part) for part in shrunk.parts if SCRATCH in scores}
    ours, theirs = (shrunk.costs[name].latencies for name in (PRUNED, UNPRUNED))
    ratios = {batch: ratio_of(each, theirs[batch]) for batch, each in ours.items()}
    return ShrunkComparison(shrunk, asked, differences, untaught, anew, ratios)


def _values(shrunk: Shrunk, name: str, part: Split, metric: str) -> list[float]:
    kind = metric.removeprefix("val_")
    return [each[part].by_name()[kind] for each in shrunk.scores[name]]
