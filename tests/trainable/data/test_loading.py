"""Tests that batches are the same whatever the workers, the batch and what came before."""

import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.trainable.small_images import write_noise_jpeg
from trainable.augmentation.draws import Change, Draws
from trainable.bench import ON_CPU, Bench
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import from_arrays, load
from trainable.data.batch import PORTION_BATCHES, Batch
from trainable.data.loading import ArrayLoader, FileLoader, Loader, in_portions, may_reside
from trainable.data.readers import FileImages
from trainable.errors import DataError
from trainable.recipe import Recipe
from trainable.recipe.augmentations import (
    Augmentation,
    AutoAugment,
    Cutout,
    GridMask,
    HideAndSeek,
    NoCrop,
    PadCrop,
    RandAugment,
    RandomErasing,
    ResizedCrop,
    TrivialAugment,
)
from trainable.recipe.data import Data
from trainable.recipe.training import CenterCrop, Evaluation, Loop, Precision
from trainable.run import make_run
from trainable.tasks.kits import make_loader

CPU = torch.device("cpu")
PLAIN = Augmentation(crop=NoCrop(), flip_probability=0.0)
EVERYTHING = Augmentation(crop=PadCrop(), policy=RandAugment(), masking=RandomErasing())
AUGMENTATIONS = {
    "pad, randaugment and erasing": EVERYTHING,
    "resized crop, trivialaugment and cutout": Augmentation(
        crop=ResizedCrop(), policy=TrivialAugment(), masking=Cutout()
    ),
    "autoaugment and gridmask": Augmentation(policy=AutoAugment(), masking=GridMask(ramp=0.0, rotation=90.0)),
    "hide and seek": Augmentation(masking=HideAndSeek()),
}
BATCHES = torch.arange(24).split(5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    for number in range(40):
        path = root / ("train", "val")[number >= 24] / ("a", "b")[number % 2] / f"{number}.jpg"
        write_noise_jpeg(path, seed=number, size=20)
    return root


@pytest.fixture(scope="module", params=["arrays", "files"])
def data(request: pytest.FixtureRequest, folder: Path) -> DataSet:
    held = request.param == "arrays"
    return load(Data(path=str(folder), image_size=12, flips=("horizontal", "vertical"), in_memory=held))


def recipe(augmentation: Augmentation = PLAIN, workers: int = 0, seed: int = 0) -> Recipe:
    return Recipe(
        augmentation=augmentation, loop=Loop(workers=workers, seed=seed), evaluation=Evaluation(batch_size=7)
    )


def epoch(loader: Loader, number: int = 1, batches: tuple[torch.Tensor, ...] = BATCHES) -> torch.Tensor:
    return torch.cat([images for images, _ in loader.train(batches, number)])


def test_batches_are_normalised_by_the_training_part_and_labelled(data: DataSet) -> None:
    images, labels = zip(*make_loader(data, recipe(), ON_CPU).train(BATCHES, 0), strict=True)

    assert torch.cat(labels).tolist() == data.train.labels.tolist()
    pixels = torch.cat(images)
    assert pixels.dtype == torch.float32
    torch.testing.assert_close(pixels.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(pixels.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)


def test_files_and_arrays_give_the_same_images_without_augmentation(folder: Path) -> None:
    both = [load(Data(path=str(folder), image_size=12, in_memory=held)) for held in (True, False)]

    held, read = (epoch(make_loader(each, recipe(), ON_CPU)) for each in both)

    torch.testing.assert_close(held, read)


def test_a_batch_holds_what_was_asked_for_in_that_order(data: DataSet) -> None:
    loader = make_loader(data, recipe(), ON_CPU)
    wanted = torch.tensor([20, 3, 11])

    ((images, labels),) = loader.train([wanted], 0)

    assert torch.equal(images, epoch(loader)[wanted])
    assert labels.tolist() == data.train.labels[wanted.numpy()].tolist()


def test_evaluation_is_in_order_and_whole_with_a_short_last_batch(data: DataSet) -> None:
    loader = make_loader(data, recipe(EVERYTHING), ON_CPU)

    batches = list(loader.evaluate("validation"))

    assert [len(images) for images, _ in batches] == [7, 7, 2]
    assert torch.cat([labels for _, labels in batches]).tolist() == data.validation.labels.tolist()
    plain = torch.cat([images for images, _ in loader.evaluate("train")])
    assert torch.equal(plain, epoch(make_loader(data, recipe(PLAIN), ON_CPU)))


def test_a_part_that_is_not_there_is_an_error(data: DataSet) -> None:
    with pytest.raises(DataError, match=r"test.*train, validation"):
        list(make_loader(data, recipe(), ON_CPU).evaluate("test"))


@pytest.mark.parametrize("augmentation", AUGMENTATIONS.values(), ids=AUGMENTATIONS)
def test_an_image_is_augmented_alike_whatever_its_batch_and_otherwise_by_epoch_and_seed(
    data: DataSet, augmentation: Augmentation
) -> None:
    first = epoch(make_loader(data, recipe(augmentation), ON_CPU), 3)

    again = make_loader(data, recipe(augmentation), ON_CPU)
    epoch(again, 1)
    list(again.evaluate("validation"))
    assert torch.equal(epoch(again, 3, torch.arange(24).split(9)), first)
    assert not torch.equal(epoch(again, 4), first)
    assert not torch.equal(epoch(make_loader(data, recipe(augmentation, seed=1), ON_CPU), 3), first)


def array_set(channels: int = 1, side: int = 8) -> DataSet:
    shape = (24, side, side, 3) if channels == 3 else (24, side, side)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    labels = np.arange(24) % 2
    spec = Data(path="noise", image_size=side, flips=("horizontal", "vertical"))
    return from_arrays((images, labels), (images, labels), spec=spec)


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (1, 28), (3, 32)])
@pytest.mark.parametrize("augmentation", AUGMENTATIONS.values(), ids=AUGMENTATIONS)
def test_portions_are_handed_out_as_the_batches_of_one_at_a_time(
    augmentation: Augmentation, channels: int, side: int
) -> None:
    loader = make_loader(array_set(channels, side), recipe(augmentation), ON_CPU)
    loader.portion_images = 0
    each = list(loader.train(BATCHES, 1))

    loader.portion_images = 12
    in_slices = list(loader.train(BATCHES, 1))

    assert len(in_slices) == len(each)
    for (images, labels), (others, their_labels) in zip(in_slices, each, strict=True):
        assert torch.equal(images, others)
        assert torch.equal(labels, their_labels)
        assert images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("sizes", "images", "expected"),
    [
        ([5, 5, 5, 4], 0, [1, 1, 1, 1]),
        ([5, 5, 5, 4], 9, [1, 1, 2]),
        ([5, 5, 5, 4], 10, [2, 2]),
        ([5, 5, 5, 4], 100, [4]),
        ([30, 5, 5], 12, [1, 2]),
        ([1] * (2 * PORTION_BATCHES + 1), 1000, [PORTION_BATCHES, PORTION_BATCHES, 1]),
        ([], 10, []),
    ],
)
def test_a_portion_is_cut_between_batches(sizes: list[int], images: int, expected: list[int]) -> None:
    batches = [np.full(size, number) for number, size in enumerate(sizes)]
    portions = in_portions(batches, images)
    assert [len(portion) for portion in portions] == expected
    assert [id(batch) for portion in portions for batch in portion] == [id(batch) for batch in batches]


def test_images_of_files_come_by_batches_and_decoded_ones_in_portions(data: DataSet) -> None:
    portion = 2 * 2**20 // (3 * 12 * 12) if data.info.in_memory else 0
    assert make_loader(data, recipe(), ON_CPU).portion_images == portion


def out_of_memory_above(most: int) -> Change:
    def change(images: torch.Tensor, draws: Draws) -> torch.Tensor:
        if len(images) > most:
            raise torch.OutOfMemoryError("no memory for so many images")
        return images

    return change


def test_batches_come_one_at_a_time_after_memory_ran_out_for_a_portion() -> None:
    loader = make_loader(array_set(), recipe(EVERYTHING), ON_CPU)
    expected = epoch(loader)
    masking, loader.portion_images = loader.masking, 12

    loader.masking = (*masking, out_of_memory_above(5))
    assert torch.equal(epoch(loader), expected)
    assert loader.portion_images == 0

    loader.masking = (*masking, out_of_memory_above(4))
    with pytest.raises(torch.OutOfMemoryError):
        epoch(loader)


def test_a_portion_is_free_when_memory_has_run_out_for_the_next_one() -> None:
    loader = make_loader(array_set(), recipe(), ON_CPU)
    loader.portion_images = 12
    portions: list[weakref.ref[torch.Tensor]] = []

    def only_the_first(images: torch.Tensor, draws: Draws) -> torch.Tensor:
        if portions and len(images) > 5:
            raise torch.OutOfMemoryError("no memory for a second portion")
        if portions:
            assert portions[0]() is None
        return images

    loader.masking = (only_the_first,)
    for images, _ in loader.train(BATCHES, 1):
        if not portions:
            assert images._base is not None
            portions.append(weakref.ref(images._base))
        del images
    assert loader.portion_images == 0


@pytest.mark.parametrize("augmentation", AUGMENTATIONS.values(), ids=AUGMENTATIONS)
def test_the_global_generators_are_left_alone(data: DataSet, augmentation: Augmentation) -> None:
    loader = make_loader(data, recipe(augmentation), ON_CPU)
    torch.manual_seed(5)
    before = torch.get_rng_state()

    first = epoch(loader)
    list(loader.evaluate("validation"))

    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert torch.equal(epoch(loader), first)


@pytest.fixture(scope="module")
def worked(folder: Path) -> Iterator[Loader]:
    data = load(Data(path=str(folder), image_size=12, flips=("horizontal",), in_memory=False))
    loader = make_loader(data, recipe(EVERYTHING, workers=2), ON_CPU)
    yield loader
    loader.close()
    data.idle_readers.end()


@pytest.fixture(scope="module")
def unworked(folder: Path) -> Loader:
    data = load(Data(path=str(folder), image_size=12, flips=("horizontal",), in_memory=False))
    return make_loader(data, recipe(EVERYTHING), ON_CPU)


def test_two_workers_give_what_none_gives_epoch_after_epoch(worked: Loader, unworked: Loader) -> None:
    for number in (1, 2):
        assert torch.equal(epoch(worked, number), epoch(unworked, number))
        for (ours, labels), (theirs, expected) in zip(
            worked.evaluate("validation"), unworked.evaluate("validation"), strict=True
        ):
            assert torch.equal(ours, theirs)
            assert torch.equal(labels, expected)


@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_worker_is_as_many_batches_ahead_as_the_recipe_says(folder: Path, prefetch: int) -> None:
    data = load(Data(path=str(folder), image_size=12, in_memory=False))
    loader = make_loader(data, Recipe(loop=Loop(workers=1, prefetch=prefetch)), ON_CPU)
    assert isinstance(loader, FileLoader)
    readers = data.idle_readers.take(FileImages(data.selections, data.form), loader.how)

    assert readers._loader.prefetch_factor == prefetch


def test_gridmask_comes_in_over_the_recipes_epochs(data: DataSet) -> None:
    masked = Augmentation(crop=NoCrop(), flip_probability=0.0, masking=GridMask(probability=1.0, ramp=0.5))
    loader = make_loader(data, Recipe(augmentation=masked, loop=Loop(epochs=4, workers=0)), ON_CPU)
    plain = epoch(make_loader(data, recipe(), ON_CPU))

    hidden = [(epoch(loader, number) != plain).flatten(1).any(1).double().mean() for number in range(3)]

    assert hidden[0] == 0.0
    assert 0.0 < hidden[1] < 1.0
    assert hidden[2] == 1.0


@pytest.mark.slow("reads many images")
def test_batches_left_untaken_do_not_spill_into_what_is_asked_for_next(
    worked: Loader, unworked: Loader
) -> None:
    next(worked.train(BATCHES, 1))

    assert torch.equal(epoch(worked, 2), epoch(unworked, 2))


def test_two_turns_at_once_are_refused(worked: Loader) -> None:
    first = worked.train(BATCHES, 1)
    next(first)
    next(worked.evaluate("validation"))

    with pytest.raises(RuntimeError, match="batches"):
        next(first)


def test_an_image_that_breaks_later_is_named(folder: Path, tmp_path: Path) -> None:
    for number in range(8):
        write_noise_jpeg(tmp_path / ("a", "b")[number % 2] / f"{number}.jpg", seed=number)
    data = load(Data(path=str(tmp_path), in_memory=False))
    for path in tmp_path.rglob("*.jpg"):
        path.write_bytes(path.read_bytes()[:1000])

    with pytest.raises(DataError, match=r"[ab]/\d\.jpg cannot be decoded"):
        epoch(make_loader(data, recipe(), ON_CPU), 0, (torch.tensor([0]),))


@pytest.mark.parametrize("channels_last", [True, False])
def test_the_memory_format_is_the_recipes(data: DataSet, channels_last: bool) -> None:
    asked = recipe(EVERYTHING).model_copy(update={"precision": Precision(channels_last=channels_last)})
    form = torch.channels_last if channels_last else torch.contiguous_format
    loader = make_loader(data, asked, ON_CPU)

    batches: list[Batch] = [*loader.train(BATCHES, 0), *loader.evaluate("validation")]

    assert all(images.is_contiguous(memory_format=form) for images, _ in batches)


def test_the_images_in_memory_are_neither_copied_nor_written_to() -> None:
    images = np.random.default_rng(0).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    data = from_arrays((images, np.arange(24) % 2), (images, np.arange(24) % 2))
    assert isinstance(data.train, ArrayPart)
    data.train.images.flags.writeable = False
    before = data.train.images.copy()
    loader = make_loader(data, recipe(EVERYTHING), ON_CPU)
    assert isinstance(loader, ArrayLoader)

    epoch(loader)

    np.testing.assert_array_equal(data.train.images, before)
    assert np.shares_memory(loader.images["train", 8].numpy(), data.train.images)
    assert list(loader.images) == [("train", 8)]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            Recipe.from_tree({"task": {"kind": "segmentation"}, "data": {"path": "cells"}}),
            "task.kind: the recipe",
        ),
        (Recipe(data=Data(image_size=16)), "data.image_size: the recipe asks for 16, but .* with 12"),
        (Recipe(data=Data(channels=1)), "data.channels: the recipe asks for 1, but .* with 3"),
        (Recipe(evaluation=Evaluation(resize=CenterCrop())), "evaluation.resize: .*'?center_crop"),
    ],
)
def test_a_recipe_for_other_images_than_were_loaded_is_an_error(
    data: DataSet, asked: Recipe, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        make_loader(data, asked, ON_CPU)


def test_a_run_refuses_images_of_another_task_before_it_looks_for_a_network(data: DataSet) -> None:
    asked = Recipe.from_tree({"task": {"kind": "segmentation"}, "data": {"path": "cells"}})
    with pytest.raises(DataError, match=r"task\.kind: the recipe asks for segmentation, but"):
        make_run(asked, data=data, bench=ON_CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("augmentation", AUGMENTATIONS.values(), ids=AUGMENTATIONS)
def test_a_gpu_gets_the_images_of_the_cpu_and_holds_only_the_parts_it_was_asked_for(
    augmentation: Augmentation,
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    data = from_arrays((images, np.arange(24) % 2), (images, np.arange(24) % 2))
    loader = make_loader(data, recipe(augmentation), Bench(device_name="cuda"))
    assert isinstance(loader, ArrayLoader)

    there = epoch(loader)

    here = epoch(make_loader(data, recipe(augmentation), ON_CPU))
    # A grey level here and there depends on the last digit of a position or a blend.
    assert ((there.cpu() - here).abs() > 1e-4).double().mean() < 0.01
    assert [(name, held.is_cuda) for name, held in loader.images.items()] == [(("train", 8), True)]


@pytest.mark.gpu
@pytest.mark.parametrize(("channels", "side"), [(1, 8), (1, 28), (3, 32), (3, 224)])
@pytest.mark.parametrize("augmentation", AUGMENTATIONS.values(), ids=AUGMENTATIONS)
def test_portions_on_a_gpu_have_the_pixels_of_batches(
    augmentation: Augmentation, channels: int, side: int
) -> None:
    loader = make_loader(array_set(channels, side), recipe(augmentation), Bench(device_name="cuda"))
    assert loader.portion_images > 24

    in_slices = epoch(loader)

    loader.portion_images = 0
    assert torch.equal(in_slices, epoch(loader))


@pytest.mark.gpu
def test_images_beyond_the_share_of_a_gpu_stay_off_it() -> None:
    images = np.random.default_rng(0).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    data = from_arrays((images, np.arange(24) % 2), (images, np.arange(24) % 2))
    device = torch.device("cuda")
    crowded = make_loader(data, recipe(), Bench(device_name=str(device), gpu_share=1e-9))
    assert isinstance(crowded, ArrayLoader)

    there = epoch(crowded)

    assert not crowded.images["train", 8].is_cuda
    assert crowded.portion_images == 0, "the host would gather many batches before the first"
    assert torch.equal(there, epoch(make_loader(data, recipe(), Bench(device_name=str(device)))))


@pytest.mark.parametrize(
    ("image_bytes", "gpu_share", "expected"),
    [(250, 1.0, True), (251, 1.0, False), (125, 0.5, True), (126, 0.5, False)],
)
def test_all_images_together_may_take_a_quarter_of_the_share_of_a_gpu(
    image_bytes: int, gpu_share: float, expected: bool
) -> None:
    assert may_reside(image_bytes, 1000, gpu_share) is expected


@pytest.mark.parametrize("gpu_share", [0.0, -0.5, 1.5])
def test_a_share_that_is_none_is_an_error(data: DataSet, gpu_share: float) -> None:
    with pytest.raises(ValueError, match=r"gpu_share.*\b0\b.*\b1\b"):
        make_loader(data, recipe(), Bench(device_name="cpu", gpu_share=gpu_share))
