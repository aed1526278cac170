"""Finds the pretrained network that trials start from, where a study names none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from search.study import WEIGHTS, Study, weights_path
from spaces.catalog.overrides import path_of
from spaces.facts import Backbone, Facts
from spaces.rules.backbones import candidates, start, suits
from spaces.rules.finetuning import LEAST_SIDE
from spaces.rules.rulings import Rulings
from trainable.bench import Bench
from trainable.collector import load_torch
from trainable.recipe import Recipe
from trainable.recipe.models import WEIGHTS_ENDINGS, is_published, network_fields
from trainable.recipe.tasks import CLASSIFICATION, TASKS, TaskKind
from trainable.stages import stage


@dataclass(frozen=True)
class Start:
    """What the rule of the start depends on, and a hint for the person where it can do nothing."""

    stored_side: int | None = None
    backbone: Backbone | None = None
    hint: str = ""
    task: TaskKind = CLASSIFICATION.kind

    @classmethod
    def of(cls, facts: Facts) -> Start:
        """Return the start of a search that has begun."""
        return cls(facts.stored_side, facts.backbone, task=facts.task)

    def recipe(self, study: Study) -> Recipe:
        """Return the study's base recipe, with the network that the rule gives."""
        network = {path: each.what for path, each in self._network().items()}
        return study.with_rules(study.base_recipe(), network)

    def written_in(self, study: Study) -> Study:
        """Return the study with the rule's network, and the space that goes with it, as if a person had
        named them: the next search then starts from the same weights wherever it runs."""
        network = {f"base.{path}": each.what for path, each in self._network().items()}
        if not network:
            return study
        return study.with_values({**network, "space.name": study.space.name or "finetune"})

    def _network(self) -> Rulings:
        return start(self.stored_side, self.backbone, self.task)

    def known_in(self, facts: Facts) -> Facts:
        """Return the facts with those of the start."""
        return facts.model_copy(update={"stored_side": self.stored_side, "backbone": self.backbone})


@stage("looking for a network to start from")
def find_start(study: Study, bench: Bench, *, cluster: bool = False) -> Start:
    """Return the network that the study's trials may start from on a bench: if that may fetch weights the
    default one, else the first of the default ones whose weights are on this machine.

    It looks at the sizes of some images, and only where the study names no network; a person's own function
    that makes images is not called for that. On a `cluster` each machine needs the weights, so there it must
    be allowed to fetch them. Raises UserError (DataError).
    """
    if not _names_none(study):
        return Start()
    base = study.base_recipe()
    task = base.task.kind
    names = candidates(bench.kind == "cuda", task)
    if (weights := study.pinned.get(WEIGHTS)) is not None:
        named = _of_weights(str(weights), names)
        hint = "" if named is not None else _unknown(str(weights), task)
        return Start(backbone=named, hint=hint, task=task)
    if study.data.own:
        return Start()
    load_torch()
    from trainable.tasks.kits import kit_of

    side = kit_of(base.task).stored_side(base, bench=bench)
    seen = study.data.image_size or side  # by the network; None: nobody has looked
    if not suits(side, task) or seen is None or seen < LEAST_SIDE:
        return Start(side, task=task)
    if bench.may_fetch:
        return Start(side, Backbone(name=names[0]), task=task)
    if not cluster and (found := _first_at_hand(names)) is not None:
        return Start(side, Backbone(name=found), task=task)
    return Start(side, hint=_hint(names[0], study.data.path, cluster, task), task=task)


def _names_none(study: Study) -> bool:
    """Say whether a study leaves it open which network is trained."""
    if WEIGHTS in study.pinned and study.pinned[WEIGHTS] is None:
        return False
    paths = [*study.pinned, *map(path_of, study.space.overrides)]
    return not network_fields(paths)


def _unknown(weights: str, task: TaskKind) -> str:
    """Return what is assumed of a file of weights that is called after no network; nothing for the name that
    `tunebook train` gives."""
    if is_published(weights) or Path(weights).stem == "model" or Path(weights).is_dir():
        return ""
    named = f"{weights} is called after no network of timm's"
    ours = TASKS[task].networks[0]
    other = "base.model (--model of `tunebook search`) names another"
    return f"{named}: trials take it for {ours}'s, unless {other}"


def _of_weights(text: str, usual: Sequence[str]) -> Backbone | None:
    """Return the network that a file, or a file in a folder, of weights is called after, a usual one first;
    None if it is called after none of timm's."""
    if is_published(text):
        return None
    from trainable.models.timm_names import is_known

    path = weights_path(text)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    stems = [each.stem for each in files if each.suffix in WEIGHTS_ENDINGS]
    # usual networks are called by their names with or without the tag of their weights
    order = {name: number for number, each in enumerate(usual) for name in (each, each.partition(".")[0])}
    known = sorted(filter(is_known, stems), key=lambda name: order.get(name, len(order)))
    return Backbone(name=known[0], weights=text) if known else None


def _first_at_hand(names: Sequence[str]) -> str | None:
    from trainable.models.published_weights import is_at_hand

    return next((name for name in names if is_at_hand(name)), None)


def _hint(name: str, data: str, cluster: bool, task: TaskKind) -> str:
    why = "every machine of a cluster needs the weights" if cluster else "no pretrained weights are at hand"
    alone = task == CLASSIFICATION.kind  # what is learnt from data that no study goes with
    named = f"--data {quote(data)}" if alone else "STUDY.yaml"
    return (
        f"trials start from scratch, as {why}: `tunebook search {named} --download` fetches those of {name} "
        "and starts from them, --weights PATH from a file of yours"
    )
