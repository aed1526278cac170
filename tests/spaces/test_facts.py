import pytest

from spaces.facts import Facts, FactsError
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
