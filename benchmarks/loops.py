"""The loops that `throughput` compares with Run, on the same model, images, batch and rates.

Every function returns an epoch to be timed: a callable that trains one epoch and returns the number of
images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from PIL.Image import Image, fromarray
from torch import Tensor, nn

from trainable.bench import Bench
from trainable.data import ArrayPart, DataSet
from trainable.recipe import Recipe
from trainable.run import make_run
from trainable.tasks.classification.task import ClassificationTask
from trainable.training.network import make_network
from trainable.training.optim import applied_lr, make_phases
from trainable.training.precision import autocast, resolve

Epoch = Callable[[], float]
ENDLESS = 10_000  # epochs of the schedule: more than any benchmark trains


def our_run(recipe: Recipe, data: DataSet, device: torch.device) -> Epoch:
    run = make_run(recipe, data=data, bench=Bench(device_name=str(device)))
    images = float(data.info.train_images // recipe.loop.batch_size * recipe.loop.batch_size)

    def epoch() -> float:
        run.step()
        return images

    return epoch


class Setting:
    """What the loops below have in common: model, images in memory, their order, parameter groups."""

    def __init__(self, recipe: Recipe, data: DataSet, device: torch.device) -> None:
        assert isinstance(data.train, ArrayPart)
        torch.manual_seed(0)
        info = data.info
        self.recipe, self.device = recipe, device
        self.images, self.labels = (each.to(device) for each in data.train.tensors())
        self.mean = torch.tensor(info.mean, device=device).view(1, -1, 1, 1) * 255
        self.std = torch.tensor(info.std, device=device).view(1, -1, 1, 1) * 255
        self.layout = torch.channels_last if recipe.precision.channels_last else torch.contiguous_format
        model = make_network(recipe.model, info)
        self.model = model.to(device).to(memory_format=self.layout)
        self.batch = recipe.loop.batch_size
        self.steps = len(self.labels) // self.batch
        self.lr = applied_lr(recipe.optimizer, self.batch)
        self.autocast = autocast(resolve(recipe.precision, device), device)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield normalised batches in a new order."""
        for chosen in torch.randperm(len(self.labels))[: self.steps * self.batch].split(self.batch):
            chosen = chosen.to(self.device)
            images = self.images[chosen].to(torch.float32).sub_(self.mean).div_(self.std)
            yield images.contiguous(memory_format=self.layout), self.labels[chosen]

    @property
    def trained(self) -> float:
        return float(self.steps * self.batch)


def bare_loop(recipe: Recipe, data: DataSet, device: torch.device) -> Epoch:
    """Return the loop that one would write by hand: every metric on the device, one reading per epoch."""
    at = Setting(recipe, data, device)
    decayed = [weight for weight in at.model.parameters() if weight.ndim > 1]
    rest = [weight for weight in at.model.parameters() if weight.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 1e-4}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=at.lr, momentum=0.9, nesterov=True)
    loss_of = nn.CrossEntropyLoss()
    taken = 0

    def epoch() -> float:
        nonlocal taken
        at.model.train()
        loss_sum = torch.zeros((), device=device)
        right = torch.zeros((), dtype=torch.int64, device=device)
        for images, labels in at.batches():
            factor = 0.5 * (1.0 + math.cos(math.pi * taken / (at.steps * ENDLESS)))
            for group in optimizer.param_groups:
                group["lr"] = at.lr * factor
            optimizer.zero_grad(set_to_none=True)
            with at.autocast:
                logits = at.model(images)
                loss = loss_of(logits, labels)
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach()
            right += (logits.detach().argmax(1) == labels).sum()
            taken += 1
        float(loss_sum), int(right)
        return at.trained

    return epoch


def pure_step(recipe: Recipe, data: DataSet, device: torch.device) -> Callable[[], None]:
    """Return a step on one batch on the device: forward, backward and the optimizer's, nothing else."""
    info, batch = data.info, recipe.loop.batch_size
    torch.manual_seed(0)
    model = make_network(recipe.model, info).to(device).to(memory_format=torch.channels_last).train()
    images = torch.randn(batch, info.channels, info.image_size, info.image_size, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=device) % len(info.classes)
    optimizer = make_phases(recipe.optimizer, model, batch_size=batch)[0].optimizer
    task, cast = ClassificationTask(len(info.classes)), autocast(resolve(recipe.precision, device), device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with cast:
            logits = model(images)
        task.loss(logits.float(), labels).backward()
        optimizer.step()

    return step


def timm_pieces(recipe: Recipe, data: DataSet, device: torch.device) -> Epoch:
    """Return a loop of the pieces of timm's training script: its optimizer factory, scheduler and meters."""
    from timm.optim._optim_factory import create_optimizer_v2
    from timm.scheduler.cosine_lr import CosineLRScheduler
    from timm.utils.metrics import AverageMeter, accuracy

    at = Setting(recipe, data, device)
    optimizer = create_optimizer_v2(at.model, opt="sgd", lr=at.lr, weight_decay=1e-4, momentum=0.9)
    scheduler = CosineLRScheduler(optimizer, t_initial=at.steps * ENDLESS, t_in_epochs=False)
    loss_of = nn.CrossEntropyLoss()
    taken = 0

    def epoch() -> float:
        nonlocal taken
        at.model.train()
        losses, top1 = AverageMeter(), AverageMeter()
        for step, (images, labels) in enumerate(at.batches()):
            with at.autocast:
                logits = at.model(images)
                loss = loss_of(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            taken += 1
            scheduler.step_update(num_updates=taken)
            if step % 50 == 0:  # timm reads its metrics when it logs, every 50 steps
                losses.update(loss.item(), len(labels))
                top1.update(accuracy(logits, labels)[0].item(), len(labels))
        return at.trained

    return epoch


def torchvision_steps(recipe: Recipe, data: DataSet, device: torch.device) -> Epoch:
    """Return the steps of torchvision's reference script, which reads loss and accuracy at each step."""
    at = Setting(recipe, data, device)
    optimizer = torch.optim.SGD(
        at.model.parameters(), lr=at.lr, momentum=0.9, weight_decay=1e-4, nesterov=True
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=ENDLESS)
    loss_of = nn.CrossEntropyLoss()

    def epoch() -> float:
        at.model.train()
        total = 0.0
        for images, labels in at.batches():
            with at.autocast:
                logits = at.model(images)
                loss = loss_of(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right = (logits.argmax(1) == labels).float().mean().item()
            total += loss.item() + right
        scheduler.step()
        return at.trained

    return epoch


def file_loop(recipe: Recipe, data: DataSet, device: torch.device, workers: int) -> Epoch:
    """Return a bare loop over a DataLoader with torchvision's v2 transforms, one image at a time."""
    loader = v2_loader(data, recipe.loop.batch_size, workers)
    at = Setting(recipe, data, device)
    optimizer = torch.optim.SGD(at.model.parameters(), lr=at.lr, momentum=0.9, nesterov=True)
    loss_of = nn.CrossEntropyLoss()

    def epoch() -> float:
        at.model.train()
        for images, labels in loader:
            images = images.to(device, non_blocking=True).contiguous(memory_format=at.layout)
            with at.autocast:
                loss = loss_of(at.model(images), labels.to(device, non_blocking=True))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        return at.trained

    return epoch


def v2_loader(data: DataSet, batch: int, workers: int) -> torch.utils.data.DataLoader[Any]:
    """Return a loader of PIL images in memory: crop, flip, normalisation, erasing by torchvision's v2."""
    from torchvision.transforms import v2

    assert isinstance(data.train, ArrayPart)
    side = data.info.image_size
    pictures = [fromarray(each.squeeze(0)) for each in data.train.images]
    labels = data.train.labels.tolist()
    transform = v2.Compose(
        [
            v2.RandomCrop(side, padding=max(1, side // 8)),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(data.info.mean, data.info.std),
            v2.RandomErasing(0.5),
        ]
    )

    return torch.utils.data.DataLoader(
        Pictures(pictures, labels, transform),
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


class Pictures(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """PIL images in memory, transformed one at a time."""

    def __init__(
        self, pictures: Sequence[Image], labels: Sequence[int], transform: Callable[[Image], Tensor]
    ) -> None:
        self.pictures, self.labels, self.transform = pictures, labels, transform

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.pictures[index]), self.labels[index]
