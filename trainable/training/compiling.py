"""Compiles a model for training, alone and anew in every run of a process, and keeps the code for others.

What decides here stands in docs/decisions/0056.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, assert_never

import torch
from torch import nn

from trainable.files.folders import locked_folder
from trainable.files.paths import cache_root
from trainable.models.dropping import draw_alike, text_alike
from trainable.models.layers import repeated_blocks
from trainable.recipe.training import Compiling
from trainable.training.devices import machine_name

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
MOST_GRAPHS = 64  # of one function: one for each kind of block; torch's 8 are meant for a whole model

logger = logging.getLogger(__name__)


def compiled_parts(model: nn.Module, compiling: Compiling) -> str:
    """Return in words what a recipe's `loop.compile` compiles of a network; nothing if nothing is."""
    match compiling:
        case False | "auto":
            return ""
        case True:
            return "the whole network"
        case "blocks":
            blocks, kinds = _alike_blocks(model)
            if not blocks:
                return "the whole network, as it repeats no block"
            return f"{len(blocks)} blocks, of {'one kind' if kinds == 1 else f'{kinds} kinds'}"
        case _:
            assert_never(compiling)


def compile_in_place(model: nn.Module, compiling: Compiling, *, one_size: bool) -> str:
    """Compile what a recipe's `loop.compile` names; the names of weights stay.

    Nothing is compiled before the first step. With `one_size`, images always have the same one. Return what
    `compiled_parts` does.
    """
    if not (parts := compiled_parts(model, compiling)):
        return parts
    keep_code()
    blocks = _alike_blocks(model)[0] if compiling == "blocks" else []
    for each in blocks:
        draw_alike(each)
        # by default torch takes the next kind's sizes for ones that change, and its kernels are slower
        each.compile(dynamic=False if one_size else None)
    if not blocks:
        model.compile()
    return parts


def _alike_blocks(model: nn.Module) -> tuple[list[nn.Module], int]:
    """The repeated blocks and the number of their kinds; none where no two of them would share code."""
    blocks = list(repeated_blocks(model).values())
    kinds = len({_kind(each) for each in blocks})
    return (blocks, kinds) if kinds < len(blocks) else ([], 0)


def _kind(block: nn.Module) -> tuple[object, ...]:
    """What a block has in common with those that share its code; hooks are compiled with it."""
    hooks = [id(hook) for each in block.modules() for hook in each._forward_hooks.values()]
    return text_alike(block), *(each.shape for each in block.parameters()), *hooks


@contextmanager
def while_training(compiling: Compiling) -> Iterator[None]:
    """Let torch compile as many kinds of blocks as networks have."""
    if compiling != "blocks":
        yield
        return
    with torch._dynamo.config.patch(recompile_limit=MOST_GRAPHS), warnings.catch_warnings():
        # torch looks at the gradients of a graph's inputs, which those of a block do not keep
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf", UserWarning)
        yield


def eagerly(compiled: bool) -> AbstractContextManager[Any]:
    """Return a context in which a compiled model computes as if it was not compiled.

    Scoring and measuring have other batch sizes and modes, and each would be compiled for itself: a minute,
    to save less than that.
    """
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


def forget_compiled() -> None:
    """Free all that this process has compiled; what is on the disk stays.

    torch compiles a function, of whatever model, 8 times in a process; afterwards it runs it as it is, and
    only a warning tells. A worker's third model would train at the speed of one that is not compiled.
    """
    torch._dynamo.reset()


def keep_code() -> None:
    """Let this process keep compiled code where other processes, and later commands, find it.

    Such code is run, so a folder into which others may write is not used, nor one for another processor:
    inductor's files do not say for which they are. Where the person named a folder, that one is used.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # it imports all of the compiler

    named = os.environ.get(CACHE_VARIABLE)
    if named not in (None, default_cache_dir()):  # torch sets that one itself, as soon as it is imported
        return
    made_for = hashlib.sha256(f"{torch.__version__} {machine_name()}".encode()).hexdigest()[:16]
    folder = cache_root() / "compiled" / made_for
    try:
        for each in (folder.parent, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_is_ours(each)
    except OSError as error:
        logger.warning(
            "compiled code is not kept for other processes and later commands: %s; mend that, or name a "
            "folder of your own in %s",
            error,
            CACHE_VARIABLE,
        )
        folder = locked_folder(Path(tempfile.gettempdir()), "tunebook-compiled-").path
    os.environ[CACHE_VARIABLE] = str(folder)


def _check_is_ours(folder: Path) -> None:
    """Raise OSError for a folder of another user, or one into which others may write."""
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others may write to {folder} (chmod go-w {folder})")
