"""Every call that an exported script may make."""

from __future__ import annotations

import ast
from collections.abc import Iterator

OF_PYTHON = """
abs all divmod enumerate int isinstance len list max min next print range round super tuple zip
math.cos math.floor functools.partial argparse.ArgumentParser
random.choice random.randint random.random random.randrange random.seed
"""
OF_LIBRARIES = """
AveragedModel DataLoader Lamb Lars Subset WeightedRandomSampler create_optimizer_v2 load_file stochastic_depth
update_bn datasets.ImageFolder models.get_model timm.create_model
functional.cross_entropy functional.dropout functional.interpolate functional.one_hot functional.relu
nn.BatchNorm2d nn.Conv2d nn.Identity nn.Linear nn.Sequential
nn.init.kaiming_normal_ nn.init.zeros_ nn.utils.clip_grad_norm_
torch.arange torch.autocast torch.clamp torch.compile torch.device torch.inference_mode torch.load
torch.manual_seed torch.no_grad torch.rand torch.randperm torch.save torch.tensor torch.where
torch.amp.GradScaler torch.cuda.is_available
torch.optim.Adadelta torch.optim.Adam torch.optim.AdamW torch.optim.RMSprop torch.optim.SGD
v2.AutoAugment v2.Compose v2.CutMix v2.MixUp v2.Normalize v2.RandAugment v2.RandomCrop v2.RandomErasing
v2.RandomHorizontalFlip v2.RandomResizedCrop v2.RandomVerticalFlip v2.ToDtype v2.TrivialAugmentWide
v2.functional.center_crop v2.functional.pil_to_tensor v2.functional.resize
Image.alpha_composite Image.new Image.open ImageOps.exif_transpose
"""
VARIABLES = "mix model norm part"  # variables of a script that it calls
KNOWN = {*OF_PYTHON.split(), *OF_LIBRARIES.split(), *VARIABLES.split()}
# Modules whose calls are known by their whole names
MODULES = {name.partition(".")[0] for name in KNOWN if "." in name}
# Methods of what a script has made, by their last names
METHODS = """
__init__ add_argument append argmax backward clamp contiguous convert cpu error eval exists first first_norm
flip float get_submodule head is_dir is_floating_point item items load_state_dict masked_fill mean modules
mul_ named_modules named_parameters parameters parse_args point repeat_interleave requires_grad_ scale second
second_norm set_submodule setdefault shortcut softmax stages startswith state_dict stem stem_norm step sum to
tolist train unscale_ update update_parameters values zero_grad
"""


def unknown_calls(tree: ast.AST) -> Iterator[str]:
    """Yield the calls of a program that are neither listed here nor of its own functions and classes."""
    own = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Call) and not _is_known(each.func, own):
            yield ast.unparse(each.func)


def _is_known(function: ast.expr, own: set[str]) -> bool:
    name = ast.unparse(function)
    if name in KNOWN | own:
        return True
    of_a_module = name.partition(".")[0] in MODULES and "(" not in name
    return isinstance(function, ast.Attribute) and not of_a_module and function.attr in METHODS.split()
