import pytest

from spaces.domains import Choice, Domain, Float, Integer
from spaces.forms import allowed, fields_of, form_like, forms, kinds_having, purpose_of, types_of
from trainable.recipe import Recipe


def test_every_field_of_a_recipe_has_a_type_and_no_other_has() -> None:
    assert all(types_of(path) for path, _ in Recipe().leaves())
    assert not any(types_of(path) for path in ("optimizer.lrr", "optimiser.lr", "loop.epochs.x", "lr"))


@pytest.mark.parametrize(
    "path", ["optimizer.lrr", "optimiser.lr", "loop.epochs.x", "lr", "loop", "loop.kind"]
)
def test_what_is_no_field_has_no_purpose(path: str) -> None:
    with pytest.raises(LookupError, match=path):
        purpose_of(path)


def test_a_kind_has_the_purpose_of_its_section_unless_it_has_its_own() -> None:
    assert purpose_of("optimizer.kind").reason.startswith("SGD with momentum for accuracy")
    assert purpose_of("precision.kind").reason.startswith("half precision")


@pytest.mark.parametrize(
    ("path", "having"),
    [
        ("schedule.gamma", ("step", "exp", "cyclic")),
        ("model.depth", ("resnet_small",)),
        ("model.layer_rates.lowest", ("geometric",)),
        ("optimizer.lr", ()),
        ("loop.workers", ()),
    ],
)
def test_kinds_are_named_for_a_field_that_others_lack(path: str, having: tuple[str, ...]) -> None:
    assert kinds_having(path) == having


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("optimizer.lr", ("log: [low, high]", "uniform: [low, high]", "choice: [number, ...]")),
        ("model.dropout", ("log: [low, high]", "uniform: [low, high]", "choice: [number, ...]")),
        ("loop.workers", ("int: [low, high]", "int_log: [low, high]", "choice: [number, ...]")),
        ("model.depth", ("choice: [8, 14, 20, 32, 44, 56]",)),
        ("augmentation.crop.kind", ("choice: [none, pad, resized, scaled]",)),
        ("precision.kind", ("choice: [auto, fp32, tf32, bf16, fp16]",)),
        ("loop.compile", ("choice: [false, true, blocks, auto]",)),
        ("model.name", ("choice: [word, ...]",)),
        ("model.output_stride", ("choice: [8, 16]",)),
        ("evaluation.scales", ()),
    ],
)
def test_a_field_is_varied_in_the_forms_of_its_type(path: str, written: tuple[str, ...]) -> None:
    assert forms(path) == written


def test_a_closed_list_allows_its_own_values_alone() -> None:
    assert allowed("model.depth", 14)
    assert not allowed("model.depth", 9)
    assert allowed("optimizer.lr", 9)
    assert allowed("model.name", "resnet18")  # smp alone lists its names


def test_the_fields_of_a_section_are_those_of_all_its_kinds() -> None:
    assert fields_of("augmentation.crop")[:2] == ("augmentation.crop.kind", "augmentation.crop.fraction")
    assert "optimizer.beta2" in fields_of("optimizer")
    assert fields_of("optimizer.lr") == ()


@pytest.mark.parametrize(
    ("domain", "form"),
    [
        (Float(0.1, 1.0, log=True), "log: [low, high]"),
        (Float(0.1, 1.0), "uniform: [low, high]"),
        (Integer(1, 9), "int: [low, high]"),
        (Integer(1, 9, log=True), "int_log: [low, high]"),
        (Choice((1, 2)), "choice: [option, ...]"),
    ],
)
def test_a_domain_is_written_in_the_form_of_its_sort(domain: Domain, form: str) -> None:
    assert form_like(domain) == form
