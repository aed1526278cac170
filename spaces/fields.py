"""States what each field of a Recipe is for, and the source, for values that no heuristic has set.

Sources are cited as in `spaces.rules.heuristics`. `ours` marks what neither the documents nor papers ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from trainable.recipe import Recipe, trees


class Purpose(NamedTuple):
    """Says what a field is for, whatever its value, and names the source."""

    reason: str
    source: str


ADAM = "arXiv 1412.6980, section 2"
RESTARTS = "001:130-189; arXiv 1608.03983, section 3"
ONE_CYCLE = "000:55, 001:136, 002:6; arXiv 1708.07120"
TRIANGLES = "001:136; arXiv 1506.01186, section 3"
ERASING = "003:81; arXiv 1708.04896"
GRID = "003:79; arXiv 2001.04086, section 3"
SCALES = "001:208; arXiv 1612.08242, section 2"
PERSON = "yours to say"

PURPOSES: dict[str, Purpose] = {
    "version": Purpose("the file's format", "ours"),
    "task.kind": Purpose("one label an image", "003:43"),
    "data.path": Purpose("the images to learn from", PERSON),
    "data.format": Purpose("how the images are stored; auto looks", PERSON),
    "data.name": Purpose("torchvision's name of the set, for format torchvision", PERSON),
    "data.train": Purpose("the training folder, where it has another name", PERSON),
    "data.validation": Purpose("the validation folder, where it has another name", PERSON),
    "data.test": Purpose("the test folder, where it has another name; never seen by a search", PERSON),
    "data.validation_fraction": Purpose("part of the images to compare recipes on", "ours"),
    "data.test_fraction": Purpose("part of the images that scores the exported recipe alone", "ours"),
    "data.split_seed": Purpose("which image is in which part", "ours"),
    "data.train_limit": Purpose("at most so many training images", PERSON),
    "data.channels": Purpose("grey or colour, as most of the images unless said so", "the data"),
    "data.image_size": Purpose(
        "side in pixels, the short side at most 64 on a CPU unless said so", "the data"
    ),
    "data.flips": Purpose("flips under which a label survives", "000:22"),
    "data.in_memory": Purpose("small sets are held decoded; the numbers stay the same", "ours"),
    "model.kind": Purpose("where the model comes from", PERSON),
    "model.name": Purpose("the model", PERSON),
    "model.depth": Purpose("layers, in three stages of residual blocks", "arXiv 1512.03385, section 4.2"),
    "model.width": Purpose("channels of the first stage", "arXiv 1512.03385, section 4.2"),
    "model.stem_stride": Purpose("2 halves the image first: cheaper, a little less accurate", "ours"),
    "model.weights": Purpose(
        "pretrained weights to start from, their head replaced", "001:98, 003:88, 000:48"
    ),
    "model.initialisation": Purpose(
        "how layers without loaded weights begin", "001:86; arXiv 1502.01852, Glorot 2010, arXiv 1312.6120"
    ),
    "model.zero_init_residual": Purpose(
        "residual blocks begin as the identity; null leaves it to the library",
        "arXiv 1706.02677, section 5.1",
    ),
    "model.dropout": Purpose(
        "share of features dropped before the head; null leaves it to the library", "001:251; JMLR 15:1929"
    ),
    "model.stochastic_depth": Purpose(
        "how often the last block is skipped; null leaves it to the library", "arXiv 1603.09382, section 3"
    ),
    "model.freeze_epochs": Purpose("the head alone is trained first, then all", "001:100"),
    "model.freeze_norm": Purpose("BatchNorm keeps its statistics, scale and shift", "000:51"),
    "model.layer_rates.kind": Purpose("rates that fall from the head to the stem", "001:102"),
    "model.layer_rates.lowest": Purpose("the stem's rate over the head's", "001:102; arXiv 1801.06146"),
    "model.layer_rates.factor": Purpose(
        "a layer group's rate over that of the one above it", "001:102; arXiv 2003.10555"
    ),
    "optimizer.kind": Purpose(
        "SGD with momentum for accuracy, AdamW for speed, LARS and LAMB for large batches",
        "003:4, 001:136-138, 002:22, 004:83-87",
    ),
    "optimizer.lr": Purpose("at batch 256", "003:13, 003:23; arXiv 1706.02677, section 2.1"),
    "optimizer.scaling": Purpose("how the rate follows the batch", "000:25, 003:23; arXiv 2205.10287"),
    "optimizer.momentum": Purpose(
        "share of the last step in the next", "003:4; arXiv 1905.02244, 1708.03888"
    ),
    "optimizer.nesterov": Purpose("looks ahead along the momentum", "arXiv 1706.02677, section 5.1"),
    "optimizer.beta1": Purpose("memory of the mean gradient", ADAM),
    "optimizer.beta2": Purpose("memory of the gradient's square", ADAM),
    "optimizer.alpha": Purpose("memory of the gradient's square", "arXiv 1905.02244, section 6.1"),
    "optimizer.rho": Purpose("memory of the squares of gradients and steps", "arXiv 1212.5701, section 3"),
    "optimizer.eps": Purpose("keeps the division finite", f"{ADAM}; 1212.5701, section 3"),
    "optimizer.trust": Purpose("a layer's step over the length of its weights: eta", "arXiv 1708.03888"),
    "optimizer.weight_decay": Purpose("pull of the weights to zero", "003:26-40; arXiv 1711.05101"),
    "optimizer.switch_at": Purpose("part of the run after which SGD takes over", "001:138; arXiv 1712.07628"),
    "optimizer.sgd_lr": Purpose("SGD's after the switch, at batch 256", "001:138, 003:13, 003:23"),
    "optimizer.sgd_weight_decay": Purpose("SGD's pull of the weights to zero", "001:138, 003:26-40"),
    "optimizer.decay_norm_and_bias": Purpose("whether these decay too", "arXiv 1812.01187, section 3.1"),
    "schedule.kind": Purpose("the rate's shape over the run", "003:13, 000:27"),
    "schedule.warmup_epochs": Purpose("the rate rises from 0 first", "000:29, 003:20"),
    "schedule.final_factor": Purpose("where each cosine ends, of the rate", "001:126; arXiv 1608.03983"),
    "schedule.every": Purpose("part of the run from fall to fall: 30 of 120 epochs", "003:13"),
    "schedule.gamma": Purpose("factor of each fall, or of each epoch", "003:13; arXiv 1506.01186"),
    "schedule.power": Purpose("1 falls in a straight line", "003:13; arXiv 1606.00915"),
    "schedule.cycle_epochs": Purpose("length of the first cycle: T_0", RESTARTS),
    "schedule.growth": Purpose("each cycle is so many times as long as the last: T_mult", RESTARTS),
    "schedule.rise": Purpose("part of the run in which the rate rises", ONE_CYCLE),
    "schedule.div": Purpose("the rate begins at 1 / div of its peak", ONE_CYCLE),
    "schedule.final_div": Purpose("the rate ends at 1 / final_div of where it began", ONE_CYCLE),
    "schedule.anneal": Purpose("the shape of the legs", ONE_CYCLE),
    "schedule.equal_legs": Purpose(
        "down as fast as up, then to the end in what is left", "004:23; arXiv 1803.09820, section 4.3"
    ),
    "schedule.cycle_momentum": Purpose("momentum falls while the rate rises", ONE_CYCLE),
    "schedule.momentum_low": Purpose("momentum at the highest rate", ONE_CYCLE),
    "schedule.momentum_high": Purpose("momentum at the lowest rates", ONE_CYCLE),
    "schedule.mode": Purpose("how the triangles shrink", TRIANGLES),
    "schedule.lowest": Purpose("the triangles' lower end, of the rate", TRIANGLES),
    "schedule.rise_epochs": Purpose("half a cycle: 2 to 10 epochs", TRIANGLES),
    "regularisation.label_smoothing": Purpose("softens the labels of large models", "003:43-59, 000:36"),
    "regularisation.clipping.kind": Purpose("bounds the gradient", "000:7-20, 004:155"),
    "regularisation.clipping.max_norm": Purpose("the longest gradient", "000:7-20, 004:155"),
    "regularisation.clipping.factor": Purpose(
        "each unit's longest gradient, over the norm of its weights",
        "000:7-20; arXiv 2102.06171, section 4.1",
    ),
    "regularisation.averaging.kind": Purpose("averages the weights, and scores the average", "ours"),
    "regularisation.averaging.decay": Purpose("share of the average that each step keeps", "ours"),
    "augmentation.crop.kind": Purpose("random place, or place and size, of the image", "003:62"),
    "augmentation.crop.fraction": Purpose("largest shift, of the side", "arXiv 1512.03385, section 4.2"),
    "augmentation.crop.scale_min": Purpose("least area of a crop; larger for small nets", "003:62-67"),
    "augmentation.crop.scale_max": Purpose("largest area of a crop", "003:62"),
    "augmentation.crop.ratio_min": Purpose("narrowest crop, width over height", "003:62"),
    "augmentation.crop.ratio_max": Purpose("widest crop, width over height", "003:62"),
    "augmentation.flip_probability": Purpose("for each flip that data.flips allows", "000:22, 003:70"),
    "augmentation.policy.kind": Purpose("a policy of random distortions", "003:70-80"),
    "augmentation.policy.num_ops": Purpose("distortions an image", "arXiv 1909.13719, section 4.4"),
    "augmentation.policy.magnitude": Purpose("strength, 0 to 30", "arXiv 1909.13719, section 4.1"),
    "augmentation.policy.policy": Purpose(
        "the data set that the distortions were learnt on", "003:75; arXiv 1805.09501"
    ),
    "augmentation.masking.kind": Purpose("hides a part of the image: one at most", "003:78-82"),
    "augmentation.masking.probability": Purpose(
        "share of images with a hole; of cells hidden, for hide_and_seek",
        "003:78-82; arXiv 1708.04896, 1708.04552, 2001.04086, 1811.02545",
    ),
    "augmentation.masking.area_min": Purpose("least share of the image erased", ERASING),
    "augmentation.masking.area_max": Purpose("largest share of the image erased", ERASING),
    "augmentation.masking.ratio_min": Purpose("flattest hole, height over width", ERASING),
    "augmentation.masking.ratio_max": Purpose("tallest hole, height over width", ERASING),
    "augmentation.masking.side": Purpose(
        "the square's, of the image's: 16 of 32 px", "003:78; arXiv 1708.04552, section 3.2"
    ),
    "augmentation.masking.kept": Purpose("the kept stripe of each period: r", GRID),
    "augmentation.masking.period_min": Purpose("least distance of the squares, of the side: 96 of 224", GRID),
    "augmentation.masking.period_max": Purpose("largest distance of the squares, of the side", GRID),
    "augmentation.masking.rotation": Purpose("the grid turns by so many degrees at most", GRID),
    "augmentation.masking.ramp": Purpose("part of the run in which the probability rises from 0", GRID),
    "augmentation.mixing.kind": Purpose("mixes pairs of images and labels", "003:70-77"),
    "augmentation.mixing.alpha": Purpose("how evenly pairs mix", "arXiv 1710.09412, 1905.04899"),
    "augmentation.mixing.probability": Purpose("share of batches mixed", "arXiv 1905.04899"),
    "augmentation.size.kind": Purpose(
        "the size of training images: fixed, mixed, or growing", "001:208, 000:49"
    ),
    "augmentation.size.smallest": Purpose("smallest size, of data.image_size", SCALES),
    "augmentation.size.largest": Purpose("largest size, of data.image_size", SCALES),
    "augmentation.size.every": Purpose("steps until the size changes", SCALES),
    "augmentation.size.start": Purpose("the first size, of data.image_size", "000:49; arXiv 2104.00298"),
    "augmentation.size.until": Purpose(
        "part of the run after which images have their whole size", "000:49; arXiv 2104.00298"
    ),
    "precision.kind": Purpose("half precision where the device gains by it", "000:5, 001:212, 004:51"),
    "precision.channels_last": Purpose(
        "the layout that convolutions are fastest in", "torch's documentation"
    ),
    "loop.epochs": Purpose("length of the run; cosine wants long ones", "003:17"),
    "loop.batch_size": Purpose("effective batch", "003:23, 004:43-49"),
    "loop.micro_batch": Purpose("at most so many images at once, gradients accumulated", "002:24, 004:113"),
    "loop.seed": Purpose("weights, order and augmentation", "ours"),
    "loop.workers": Purpose("processes that decode images not held in memory", "000:56, 002:8, 004:37"),
    "loop.prefetch": Purpose("batches that each such process is ahead", "000:56, 002:8, 004:37"),
    "loop.sync_norm": Purpose("BatchNorm over all ranks, for small micro-batches", "004:135"),
    "loop.checkpoint_activations": Purpose(
        "less memory, for computing blocks twice", "004:101; arXiv 1604.06174"
    ),
    "loop.compile": Purpose("faster steps after a minute of compiling", "torch's documentation"),
    "evaluation.batch_size": Purpose("changes speed alone", "ours"),
    "evaluation.resize.kind": Purpose("how an image becomes a square", "ours"),
    "evaluation.resize.ratio": Purpose("the middle of a larger image: 224 of 256", "arXiv 1409.4842"),
    "evaluation.flip": Purpose("averages over the image and its mirror", "000:47"),
    "evaluation.scales": Purpose("averages over these sizes, of data.image_size", "000:46"),
    "evaluation.norm_batches": Purpose(
        "BatchNorm's statistics lag behind the weights at high rates; 0 leaves them", "ours"
    ),
}


def leaves(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Yields every dotted path with its value, without provenance; a list is one value."""
    tree = recipe.tree()
    tree.pop("provenance", None)
    yield from trees.leaves(tree)
