"""What each field of a Recipe is for and who says so: for values that no heuristic has set.

Sources are cited as in `spaces.heuristics`; `ours` marks what neither documents nor papers ask for.
"""

from __future__ import annotations

from typing import NamedTuple


class Purpose(NamedTuple):
    """What a field is for, whatever its value, and the source."""

    reason: str
    source: str


ADAM = "arXiv 1412.6980, section 2"
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
    "optimizer.kind": Purpose("SGD with momentum for accuracy, AdamW for speed", "003:4, 004:83"),
    "optimizer.lr": Purpose("at batch 256", "003:13, 003:23; arXiv 1706.02677, section 2.1"),
    "optimizer.scaling": Purpose("how the rate follows the batch", "000:25, 003:23; arXiv 2205.10287"),
    "optimizer.momentum": Purpose("share of the last step in the next", "003:4"),
    "optimizer.nesterov": Purpose("looks ahead along the momentum", "arXiv 1706.02677, section 5.1"),
    "optimizer.beta1": Purpose("memory of the mean gradient", ADAM),
    "optimizer.beta2": Purpose("memory of the gradient's square", ADAM),
    "optimizer.eps": Purpose("keeps the division finite", ADAM),
    "optimizer.weight_decay": Purpose("pull of the weights to zero", "003:26-40; arXiv 1711.05101"),
    "optimizer.decay_norm_and_bias": Purpose("whether these decay too", "arXiv 1812.01187, section 3.1"),
    "schedule.kind": Purpose("the rate's shape over the run", "003:13, 000:27"),
    "schedule.warmup_epochs": Purpose("the rate rises from 0 first", "000:29, 003:20"),
    "schedule.final_factor": Purpose("where the cosine ends, of the rate", "001:126; arXiv 1608.03983"),
    "schedule.every": Purpose("part of the run from fall to fall: 30 of 120 epochs", "003:13"),
    "schedule.gamma": Purpose("factor of each fall, or of each epoch", "003:13"),
    "schedule.power": Purpose("1 falls in a straight line", "003:13; arXiv 1606.00915"),
    "regularisation.label_smoothing": Purpose("softens the labels of large models", "003:43-59, 000:36"),
    "regularisation.clip_norm": Purpose("bounds the gradient; null leaves it", "000:7-20, 004:155"),
    "regularisation.ema_decay": Purpose("averages the weights; null does not", "ours"),
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
    "augmentation.erasing_probability": Purpose("share of images with a hole", "003:81; arXiv 1708.04896"),
    "augmentation.mixing.kind": Purpose("mixes pairs of images and labels", "003:70-77"),
    "augmentation.mixing.alpha": Purpose("how evenly pairs mix", "arXiv 1710.09412, 1905.04899"),
    "augmentation.mixing.probability": Purpose("share of batches mixed", "arXiv 1905.04899"),
    "precision.kind": Purpose("half precision where the device gains by it", "000:5, 001:212, 004:51"),
    "precision.channels_last": Purpose(
        "the layout that convolutions are fastest in", "torch's documentation"
    ),
    "loop.epochs": Purpose("length of the run; cosine wants long ones", "003:17"),
    "loop.batch_size": Purpose("effective batch", "003:23, 004:43-49"),
    "loop.micro_batch": Purpose("at most so many images at once, gradients accumulated", "002:24, 004:113"),
    "loop.seed": Purpose("weights, order and augmentation", "ours"),
    "loop.workers": Purpose("processes that decode images not held in memory", "000:56, 002:8, 004:37"),
    "evaluation.weights": Purpose("raw, or the averaged ones", "ours"),
    "evaluation.batch_size": Purpose("changes speed alone", "ours"),
    "evaluation.resize.kind": Purpose("how an image becomes a square", "ours"),
    "evaluation.resize.ratio": Purpose("the middle of a larger image: 224 of 256", "arXiv 1409.4842"),
}
