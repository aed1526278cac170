from typing import Any

import pytest

from spaces.catalog.catalog import make_space
from spaces.domains import Integer, SpaceError
from spaces.rules.optimizers import learning_rate, learning_rates
from spaces.rules.rates import KINDS, OptimizerKind
from spaces.rules.schedules import kinds
from spaces.space import When
from tests.spaces.catalog.small_catalog import AVERAGING, DECAY, LR, document, faults, names, of
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts
from trainable.recipe import Recipe

OPTIMIZERS = [
    f"optimizer.{field}[{kind}]"
    for field in ("lr", "weight_decay")
    for kind in ("sgd", "adamw", "lamb", "timm")
]


def test_a_resnet50_on_imagenet_varies_everything() -> None:
    assert names(document(imagenet_facts())) == [
        "optimizer.kind",
        "optimizer.name",
        "augmentation.policy.kind",
        "augmentation.masking.kind",
        "augmentation.mixing.kind",
        "regularisation.averaging.kind",
        "regularisation.averaging.decay",
        *OPTIMIZERS,
        "optimizer.momentum",
        "schedule.warmup_epochs",
        "regularisation.label_smoothing",
        "regularisation.clipping.kind",
        "model.dropout",
        "augmentation.crop.scale_min",
        "augmentation.policy.magnitude",
        "augmentation.masking.probability",
        "augmentation.mixing.alpha[mixup]",
        "augmentation.mixing.alpha[cutmix]",
        "regularisation.clipping.max_norm",
    ]


def test_a_tiny_net_on_tiny_images_varies_what_can_help_it() -> None:
    assert names(document(digits_facts())) == [
        "optimizer.kind",
        "optimizer.name",
        "augmentation.mixing.kind",
        "regularisation.averaging.kind",
        "regularisation.averaging.decay",
        *OPTIMIZERS,
        "optimizer.momentum",
        "schedule.warmup_epochs",
        "regularisation.clipping.kind",
        "model.dropout",
        "augmentation.mixing.alpha[mixup]",
        "regularisation.clipping.max_norm",
    ]


def test_the_first_trial_is_the_documents_own_recipe() -> None:
    space = document(imagenet_facts())
    assert space.own == {
        "optimizer.kind": "sgd",
        "optimizer.lr": 0.1,
        "optimizer.weight_decay": 1e-4,
        "optimizer.momentum": 0.9,
        "schedule.warmup_epochs": 1.0,
        "regularisation.label_smoothing": 0.1,
        "regularisation.clipping.kind": "none",
        "model.dropout": None,
        "regularisation.averaging.kind": "none",
        "augmentation.crop.scale_min": 0.08,
        "augmentation.policy.kind": "none",
        "augmentation.masking.kind": "none",
        "augmentation.mixing.kind": "none",
    }
    recipe = space.recipe(space.own)
    assert recipe == space.base
    assert (recipe.loop.batch_size, recipe.schedule.kind) == (256, "cosine")


@pytest.mark.parametrize(
    ("name", "when"),
    [
        ("optimizer.momentum", When("optimizer.kind", ("sgd",))),
        ("regularisation.averaging.decay", When("regularisation.averaging.kind", ("ema",))),
        ("augmentation.mixing.alpha[mixup]", When("augmentation.mixing.kind", ("mixup",))),
        ("augmentation.policy.magnitude", When("augmentation.policy.kind", ("randaugment",))),
        ("augmentation.masking.probability", When("augmentation.masking.kind", ("erasing",))),
    ],
)
def test_conditions_follow_what_is_drawn_before(name: str, when: When) -> None:
    assert of(document(imagenet_facts()), name).when == when


def test_the_schedules_shape_is_drawn_only_where_a_person_asks_and_then_as_the_rule_believes() -> None:
    asked = document(imagenet_facts(), overrides={"schedule.kind": {"rule": True}})
    shape, alone = of(asked, "schedule.kind"), {each.name for each in document(imagenet_facts()).dimensions}
    assert shape.prior({}) == kinds(imagenet_facts(), {}).prior
    assert of(asked, "schedule.gamma").when == When("schedule.kind", ("exp",))
    warmed = When("schedule.kind", ("cosine", "step", "poly", "exp"))
    assert of(asked, "schedule.warmup_epochs").when == warmed
    assert not {"schedule.kind", "schedule.gamma"} & alone


def test_a_rule_is_asked_for_alone() -> None:
    with pytest.raises(SpaceError, match=r"expected \{rule: true\} alone"):
        document(imagenet_facts(), overrides={"schedule.kind": {"rule": True, "prior": "step"}})


def test_a_decay_of_averages_is_drawn_only_where_there_are_averages() -> None:
    space = document(imagenet_facts())
    own = dict(space.own)
    assert DECAY not in own
    with pytest.raises(SpaceError, match=r"regularisation\.averaging\.decay: expected a value, got none"):
        space.encode({**own, AVERAGING: "ema"})
    decay = of(space, DECAY).domain.extremes()[0]
    space.encode({**own, AVERAGING: "ema", DECAY: decay})
    space.recipe({**own, AVERAGING: "ema", DECAY: decay})


@pytest.mark.parametrize(
    "clipping", [{"kind": "norm", "max_norm": 0.3}, {"kind": "adaptive", "factor": 0.02}]
)
def test_gradients_that_are_clipped_as_a_person_pinned_it_are_not_clipped_otherwise(
    clipping: dict[str, Any],
) -> None:
    values = {f"regularisation.clipping.{name}": value for name, value in clipping.items()}
    facts = imagenet_facts()
    space = make_space("document", base_recipe(facts).with_values(values), frozenset(values), facts, {})
    assert not [each.name for each in space.dimensions if each.path.startswith("regularisation.clipping")]
    assert space.base.tree()["regularisation"]["clipping"] == clipping


def test_every_dimension_has_a_reason_and_a_source() -> None:
    assert all(each.reason and each.source for each in document(imagenet_facts()).dimensions)


def test_ranges_depend_on_the_facts_and_not_on_the_rest_of_the_recipe() -> None:
    facts = imagenet_facts()
    other = base_recipe(facts, model__width=64, loop__seed=7, optimizer__lr=3.0, loop__batch_size=8)
    assert make_space("document", other, frozenset(), facts, {}).dimensions == document(facts).dimensions


def test_pins_are_no_dimensions_and_stay_in_the_first_trial() -> None:
    space = document(imagenet_facts(), optimizer__weight_decay=0.003, loop__batch_size=64)
    assert "optimizer.weight_decay[sgd]" not in names(space)
    assert "optimizer.weight_decay" not in space.own
    recipe = space.recipe(space.own)
    assert (recipe.optimizer.weight_decay, recipe.loop.batch_size) == (0.003, 64)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pinned_kind_drops_its_dimension_and_those_of_the_other_kinds(kind: OptimizerKind) -> None:
    facts = imagenet_facts()
    space = document(facts, optimizer__kind=kind)
    optimizer = [name for name in names(space) if name.startswith("optimizer")]
    own = {"sgd": ["optimizer.momentum"], "adam_then_sgd": ["optimizer.sgd_lr", "optimizer.sgd_weight_decay"]}
    first = ["optimizer.name"] if kind == "timm" else []
    assert optimizer == [*first, "optimizer.lr", "optimizer.weight_decay", *own.get(kind, [])]
    assert all(of(space, name).when is None for name in optimizer)
    assert of(space, LR).domain == learning_rates(facts, {}, kind).domain
    assert of(space, LR).prior(space.own) == learning_rates(facts, {}, kind).prior
    assert space.own[LR] == learning_rate(facts, kind).what
    assert space.recipe(space.own).optimizer.kind == kind


def test_kinds_that_a_person_adds_bring_each_its_own_dimensions() -> None:
    facts = imagenet_facts()
    space = document(facts, overrides={"optimizer.kind": {"choice": ["sgd", "lamb", "adam_then_sgd"]}})
    assert [name for name in names(space) if name.startswith("optimizer")] == [
        "optimizer.kind",
        "optimizer.lr[sgd]",
        "optimizer.lr[lamb]",
        "optimizer.lr[adam_then_sgd]",
        "optimizer.weight_decay[sgd]",
        "optimizer.weight_decay[lamb]",
        "optimizer.weight_decay[adam_then_sgd]",
        "optimizer.momentum",
        "optimizer.sgd_lr",
        "optimizer.sgd_weight_decay",
    ]
    assert of(space, "optimizer.lr[lamb]").when == When("optimizer.kind", ("lamb",))
    assert of(space, "optimizer.sgd_lr").when == When("optimizer.kind", ("adam_then_sgd",))
    assert space.own["optimizer.kind"] == "sgd"


@pytest.mark.parametrize("kind", ["sgdr", "cyclic"])
def test_a_schedule_of_cycles_is_pinned_and_never_one_choice_among_others(kind: str) -> None:
    for options in (["cosine", kind], [kind]):
        with pytest.raises(SpaceError, match=r"space\.overrides\.schedule\.kind: .* pin it under base"):
            document(imagenet_facts(), overrides={"schedule.kind": {"choice": options}})
    for space in (
        document(imagenet_facts(), schedule__kind=kind),
        document(imagenet_facts(), overrides={"schedule.kind": {"fixed": kind}}),
    ):
        assert space.base.schedule.kind == kind
        assert not [name for name in names(space) if name.startswith("schedule")]


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("sgdr", "warmup_epochs"),
        ("sgdr", "cycle_epochs"),
        ("cyclic", "warmup_epochs"),
        ("cyclic", "rise_epochs"),
    ],
)
def test_nothing_that_moves_the_ends_of_cycles_varies(kind: str, path: str) -> None:
    overrides = {f"schedule.{path}": {"uniform": [0.5, 2.0]}}
    with pytest.raises(
        SpaceError, match=rf"space\.overrides\.schedule\.{path}: moves the ends of the cycles"
    ):
        document(imagenet_facts(), overrides=overrides, schedule__kind=kind)
    lowest = {"sgdr": "schedule.final_factor", "cyclic": "schedule.lowest"}[kind]
    space = document(imagenet_facts(), overrides={lowest: {"uniform": [0.0, 0.2]}}, schedule__kind=kind)
    assert lowest in names(space)


def test_a_schedule_that_rises_by_itself_is_not_warmed_up() -> None:
    space = document(imagenet_facts(), overrides={"schedule.kind": {"choice": ["cosine", "onecycle"]}})
    assert of(space, "schedule.warmup_epochs").when == When("schedule.kind", ("cosine",))
    drawn = {path: value for path, value in space.own.items() if path != "schedule.warmup_epochs"}
    assert space.recipe({**drawn, "schedule.kind": "onecycle"}).schedule.warmup_epochs == 0.0


@pytest.mark.parametrize("masking", ["cutout", "gridmask", "hide_and_seek"])
def test_other_maskings_can_be_added_and_keep_the_papers_values(masking: str) -> None:
    options = {"choice": ["none", "erasing", masking]}
    space = document(imagenet_facts(), overrides={"augmentation.masking.kind": options})
    assert of(space, "augmentation.masking.probability").when == When(
        "augmentation.masking.kind", ("erasing",)
    )
    drawn = space.recipe({**space.own, "augmentation.masking.kind": masking})
    assert (
        drawn.augmentation.masking
        == Recipe().with_values({"augmentation.masking.kind": masking}).augmentation.masking
    )


def test_a_kind_that_is_pinned_to_one_that_varies_brings_its_dimension() -> None:
    space = document(digits_facts(), augmentation__policy__kind="randaugment")
    assert isinstance(of(space, "augmentation.policy.magnitude").domain, Integer)
    assert of(space, "augmentation.policy.magnitude").when is None


def test_a_pin_that_a_drawn_kind_lacks_is_refused() -> None:
    with pytest.raises(SpaceError) as caught:
        document(imagenet_facts(), optimizer__momentum=0.8)
    assert "pin optimizer.kind too" in faults(caught)["optimizer.momentum"]
    assert "optimizer.momentum" not in names(
        document(imagenet_facts(), optimizer__momentum=0.8, optimizer__kind="sgd")
    )


def test_a_pin_that_every_kind_has_holds_for_all() -> None:
    space = document(imagenet_facts(), optimizer__lr=0.01)
    drawn = {**space.own, "optimizer.kind": "adamw"}
    assert (
        space.recipe({path: drawn[path] for path in drawn if path != "optimizer.momentum"}).optimizer.lr
        == 0.01
    )


def test_an_unknown_space_names_the_known_ones() -> None:
    facts = digits_facts()
    known = "document, finetune, quick, wide"
    with pytest.raises(SpaceError, match=rf"space\.name: expected one of {known}, got 'documents'"):
        make_space("documents", base_recipe(facts), frozenset(), facts, {})


def test_facts_of_another_length_are_refused() -> None:
    with pytest.raises(SpaceError, match=r"loop\.epochs: expected the 20 epochs of the facts, got 30"):
        make_space("document", base_recipe(digits_facts(epochs=30)), frozenset(), digits_facts(), {})
