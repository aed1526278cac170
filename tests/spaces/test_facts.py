import pytest

from spaces.facts import NOT_OVERWRITABLE, Facts, FactsError, WrittenFacts
from tests.spaces.small_facts import digits_facts, imagenet_facts


@pytest.mark.parametrize("facts", [digits_facts(), imagenet_facts(), imagenet_facts(pretrained=True)])
def test_facts_survive_plain_data(facts: Facts) -> None:
    assert Facts.from_tree(facts.tree()) == facts


def test_every_fault_of_facts_is_named_with_its_path() -> None:
    tree = {**digits_facts().tree(), "train_images": 0, "classes": "ten", "colour": "grey"}
    with pytest.raises(FactsError) as caught:
        Facts.from_tree(tree, where="facts.json")
    assert {fault.path for fault in caught.value.faults} == {"train_images", "classes", "colour"}
    assert str(caught.value).startswith("facts.json: 3 faults")


def test_what_is_no_plain_data_is_refused() -> None:
    with pytest.raises(FactsError, match="not plain data"):
        Facts.from_tree({"train_images": object()})


def test_each_fact_can_be_written_or_is_said_to_belong_elsewhere() -> None:
    assert set(WrittenFacts.model_fields) | set(NOT_OVERWRITABLE) == set(Facts.model_fields)
    assert not set(WrittenFacts.model_fields) & set(NOT_OVERWRITABLE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr_band": [0.3, 0.1]}, "low < high"),
        ({"lr_band": [0.0, 0.1]}, "greater than 0"),
        ({"lr_band_kind": "sdg"}, "expected one of sgd"),
        ({"largest_micro_batch": 0}, "greater than or equal to 1"),
    ],
)
def test_what_no_probe_can_find_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(FactsError, match=message):
        Facts.from_tree({**digits_facts().tree(), **change})
