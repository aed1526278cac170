"""Facts for a person: each with its unit in words, its meaning and its origin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from search.facts.measured import Measured
from search.facts.packing import why_shared
from search.reporting.tables import TextTable
from search.study import FACT_OF_PROBE, Study
from spaces.domains import counted
from spaces.facts import Facts, NetworkFacts
from trainable.recipe.data import Data
from trainable.recipe.tasks import CLASSIFICATION, LARGEST_WINDOW, TASKS
from trainable.terminal import GIB

NONE = "-"


class FactRow(NamedTuple):
    """One fact: its name, its value with the unit, its meaning and its origin."""

    name: str
    value: str
    meaning: str
    origin: str


class FactText(NamedTuple):
    """How the values of a fact are shown, and its origin unless another one is known."""

    show: Callable[[Any], str]
    origin: str


def facts_table(rows: Sequence[FactRow]) -> TextTable:
    """Return a table with one row for each fact."""
    return TextTable(
        "facts", ("fact", "value", "what it is", "from"), tuple(rows), head=2, whole={"fact", "value"}
    )


def fact_rows(facts: Facts, measured: Measured, data: Data, study: Study | None = None) -> list[FactRow]:
    """Return every fact of a study, or of a recipe alone, with its section `data`; without the task where it
    is the default one, and without the longer side where images are made square.

    `measured` holds the facts before any of them was overwritten.
    """
    shown = {"task": facts.task != CLASSIFICATION.kind, "longer_side": TASKS[facts.task].windowed}
    return [
        FactRow(name, _value(name, facts), field.description or "", _origin(name, measured, data, study))
        for name, field in Facts.model_fields.items()
        if shown.get(name, True)
    ]


def _value(name: str, facts: Facts) -> str:
    value = getattr(facts, name)
    return NONE if value is None else FACT_TEXTS[name].show(value)


def _origin(name: str, measured: Measured, data: Data, study: Study | None) -> str:
    if study is not None and name in study.facts.values():
        known = measured.recorded or name in PROBES
        return "written in the study" + ("" if known else f"; measured: {_value(name, measured.facts)}")
    if name in PROBES:
        return _probe_origin(name, measured, study)
    if name in ("channels", "image_size", "flips") and getattr(data, name) is not None:
        return f"data.{name}"
    if name in KNOWN_WITHOUT_LOOKING:
        return _origin_without_looking(name, measured, study)
    origin = _origin_of_size(measured.facts) if name == "image_size" else FACT_TEXTS[name].origin
    return f"{origin} (cached)" if measured.cached else origin


def _origin_of_size(facts: Facts) -> str:
    """Say what the side of the images that the model sees follows from."""
    if TASKS[facts.task].windowed:
        gpu = facts.gpus > 0
        return f"the longer side, at most {LARGEST_WINDOW[gpu]} px on a {'GPU' if gpu else 'CPU'}"
    return "the weights, at most 96 px on a CPU" if facts.pretrained else FACT_TEXTS["image_size"].origin


def _origin_without_looking(name: str, measured: Measured, study: Study | None) -> str:
    if name == "gpu_memory_bytes":
        return "measured" if measured.facts.gpus else "no GPU is used"
    if name == "gpus" and (shared := measured.facts.footprint) is not None:
        return why_shared(shared, measured.facts.gpus)
    if name == "gpus" and study is not None and study.resources.shares_gpus and measured.facts.gpus:
        return "measured when the search begins: resources.pack"
    if name == "gpus" and (study is None or study.resources.gpus is None):
        return "what the machine has"
    return FACT_TEXTS[name].origin if study is not None else KNOWN_WITHOUT_LOOKING[name]


def _probe_origin(name: str, measured: Measured, study: Study | None) -> str:
    probe = PROBES[name]
    if name == "lr_band_kind" and study is not None and "lr_band" in study.facts.values():
        return "base.optimizer.kind, or the documented recipe's"
    if getattr(measured.facts, name) is not None:
        return f"{probe}, when the search began"
    if study is None or probe not in study.space.probes:
        return f"by space.probes: [{probe}]"
    return f"{probe} found none" if measured.recorded else f"{probe} will measure it when the search begins"


def _each_network(networks: tuple[NetworkFacts, ...]) -> str:
    lines = (
        f"{each.name}: {each.parameters:,} parameters{', attention' * each.attention}" for each in networks
    )
    return "\n".join(lines) or NONE


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


FACT_TEXTS: dict[str, FactText] = {
    "task": FactText(str, "base.task.kind"),
    "train_images": FactText(partial(counted, noun="image"), "counted"),
    "classes": FactText(partial(counted, noun="class", nouns="classes"), "counted"),
    "class_balance": FactText("{:.2f}".format, "counted"),
    "classes_count_alike": FactText(_yes_or_no, "objective.metric"),
    "channels": FactText(
        lambda channels: "1, grey" if channels == 1 else f"{channels}, colour", "as in most images"
    ),
    "image_size": FactText("{} px".format, "as in most images"),
    "flips": FactText(lambda flips: ", ".join(flips) or "none", "known for these data, or none"),
    "parameters": FactText("{:,}".format, "counted on the model"),
    "epochs": FactText(partial(counted, noun="epoch"), "budget.epochs"),
    "trials": FactText(partial(counted, noun="trial"), "budget.trials"),
    "cpus": FactText(partial(counted, noun="CPU"), "resources.cpus"),
    "gpus": FactText(partial(counted, noun="GPU"), "resources.gpus"),
    "workers": FactText(partial(counted, noun="worker"), "resources.workers"),
    "gpu_memory_bytes": FactText(lambda size: f"{size / GIB:.1f} GiB", "measured"),
    "stored_side": FactText("{} px".format, "the median of a sample"),
    "longer_side": FactText("{} px".format, "the median"),
    "backbone": FactText(
        lambda backbone: f"{backbone.name} from {backbone.weights}", "weights at hand, or --download"
    ),
    "pretrained": FactText(_yes_or_no, "base.model.weights"),
    "attention": FactText(_yes_or_no, "found in the model"),
    "batch_norm": FactText(_yes_or_no, "found in the model"),
    "networks": FactText(_each_network, "counted on each"),
    "largest_micro_batch": FactText(partial(counted, noun="image"), "batch-find"),
    "speeds": FactText(lambda speeds: "\n".join(map(str, speeds)) or NONE, "timed"),
    "teacher_parameters": FactText("{:,}".format, "counted in its weights"),
    "footprint": FactText(str, "measured where resources.pack asks for it"),
    "lr_band": FactText(lambda band: f"{band[0]:.3g} to {band[1]:.3g} at 256", "lr-find"),
    "lr_band_kind": FactText(str, "lr-find"),
}
# the probe that measures a fact, where one does
PROBES = {
    name: probe for probe, fact in FACT_OF_PROBE.items() for name in FACT_TEXTS if name.startswith(fact)
}
# the facts that no look at images or model finds, and their origin when a recipe is explained alone
KNOWN_WITHOUT_LOOKING = {
    "task": "task.kind",
    "classes_count_alike": "a study's objective.metric",
    "epochs": "loop.epochs",
    "trials": "a recipe alone",
    "cpus": "a trial's default",
    "gpus": "what the machine has",
    "workers": "a trial's default",
    "gpu_memory_bytes": "measured",
    "pretrained": "model.weights",
}
