"""The options that several commands have, each declared once, and what `train` is asked for.

An option that sets a field names it beside its help: `Sets` says where it is in a study, and in a recipe.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from trainable.bench import DeviceChoice
from trainable.errors import UserError
from trainable.terminal import tell

if TYPE_CHECKING:  # pydantic takes a while to import
    from trainable.recipe import Recipe
    from trainable.recipe.tasks import AnyTask


def _same(value: Any) -> Any:
    return value


class Sets(NamedTuple):
    """The field that an option sets, by its dotted path in a study and in a recipe."""

    study: str
    recipe: str | None = None  # None: a recipe has no such field, so the option is refused with one
    value: Callable[[Any], Any] = _same  # makes the field's value of the option's


def _networks() -> list[str]:
    """Return the names of all networks, for completion."""
    from trainable.models.network_names import every_name  # pydantic takes a while to import

    return every_name()


DataPath = Annotated[
    str | None,
    typer.Option("--data", metavar="PATH", help="`digits`, a folder of images or a file."),
    Sets("data.path", "data.path"),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="A network of torchvision or timm (timm/NAME where both have it), or resnet_small, "
        "unet_small, smp/DECODER/ENCODER.",
        autocompletion=_networks,
    ),
    Sets("base.model", "model"),
]
Weights = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Pretrained weights: a file, a folder of NAME.safetensors, or none."),
    Sets("base.model.weights", "model.weights"),
]
ImageSize = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="The side in pixels of what the network sees: of the whole image, with masks of a window.",
        min=1,
    ),
    Sets("data.image_size", "data.image_size"),
]
Seed = Annotated[
    int | None,
    typer.Option(metavar="N", help="The seed of a search, or of a recipe's training.", min=0, max=2**32 - 1),
    Sets("seed", "loop.seed"),
]
# the GPUs of a worker in a study
_GPUS: dict[DeviceChoice, int | str] = {
    DeviceChoice.AUTO: "auto",
    DeviceChoice.CPU: 0,
    DeviceChoice.CUDA: 1,
}
Device = Annotated[
    DeviceChoice | None,
    typer.Option(help="Where to train; auto: on a GPU if there is one."),
    Sets("resources.gpus", value=_GPUS.__getitem__),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Set a field; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Download = Annotated[
    bool, typer.Option("--download", help="Let torchvision and timm fetch data sets and published weights.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


def study_values(options: object) -> dict[str, Any]:
    """Return the values of a study that a command's options set, by dotted path; none where not given.

    Raises UserError where two options set one field.
    """
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, value, field in _given(options):
        if (earlier := names.setdefault(field.study, name)) != name:
            raise UserError(f"{earlier} and {name}: both set {field.study}; give one of them")
        values[field.study] = value
    return values


def recipe_with_options(recipe: Recipe, options: DataOptions) -> Recipe:
    """Return a recipe with the values that a command's options and settings set.

    `model.name` may be that of another library than the recipe's. Raises UserError, also for an option of
    which a recipe has no field.
    """
    from trainable.models.network_names import other_library  # pydantic takes a while to import
    from trainable.recipe.models import FROM_SCRATCH, MODEL_NAME
    from trainable.recipe.yamlfile import parse_setting, with_settings

    values, texts = recipe_values(options, recipe.task), list(options.settings or ())
    settings = dict(map(parse_setting, texts))
    if settings.get("model.weights") == FROM_SCRATCH:
        texts.append("model.weights=null")
    name = settings.get(MODEL_NAME)
    is_alone = "model" not in values and "model.kind" not in settings
    if is_alone and (kind := other_library(name, recipe.model.kind, recipe.task)) is not None:
        values = {"model.kind": kind, **values}
        tell_library(name, recipe.task)
    return with_settings(recipe, texts, values)


def recipe_values(options: object, task: AnyTask) -> dict[str, Any]:
    """Return the values of a recipe for a task that a command's options set, by dotted path; none where not
    given.

    Raises UserError for an option of which a recipe has no field.
    """
    from trainable.models.network_names import model_named  # pydantic takes a while to import
    from trainable.recipe.models import FROM_SCRATCH

    values: dict[str, Any] = {}
    for name, value, field in _given(options):
        if field.recipe is not None:
            values[field.recipe] = value
        elif name != "--device":  # it is the bench's, see `bench_of`
            raise UserError(f"{name}: sets {field.study} of a study, and this is a recipe; leave it out")
    if (model := values.get("model")) is not None:
        values["model"] = model_named(model, task)
        tell_library(model, task)
    if values.get("model.weights") == FROM_SCRATCH:
        values["model.weights"] = None
    return values


def tell_library(name: object, task: AnyTask) -> None:
    """Say whose network a bare name means, where two libraries have one of that name."""
    from trainable.models.network_names import also_in  # pydantic takes a while to import

    if isinstance(name, str) and (words := also_in(name, task)):
        tell(words, sys.stderr)


def _given(options: object) -> Iterator[tuple[str, Any, Sets]]:
    """Yield each option that sets a field and is given: its name, the field's value, and the field."""
    for field, hint in get_type_hints(type(options), include_extras=True).items():
        value = getattr(options, field)
        for sets in (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Sets)):
            if value is not None:
                yield f"--{field.replace('_', '-')}", sets.value(value), sets


def taking_fields(run: Callable[..., None], kind: Any) -> Callable[..., None]:
    """Return a function whose parameters are the fields of the dataclass that `run` takes, for Typer: its own
    come first, those that most commands have come last."""
    hints = get_type_hints(kind, include_extras=True)
    defaults = {each.name: each.default for each in fields(kind)}
    own_first = dict.fromkeys(name for each in kind.__mro__ for name in vars(each).get("__annotations__", ()))

    def call(**given: Any) -> None:
        run(kind(**given))

    call.__name__, call.__doc__ = run.__name__, run.__doc__
    call.__signature__ = Signature(  # type: ignore[attr-defined]  # Typer reads it
        [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if defaults[name] is MISSING else defaults[name],
                annotation=hints[name],
            )
            for name in own_first
        ]
    )
    return call


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The options of all commands that read images."""

    data: DataPath = None
    image_size: ImageSize = None
    seed: Seed = None
    device: Device = None
    settings: Set = None
    download: Download = False


@dataclass(frozen=True, kw_only=True)
class RecipeOptions(DataOptions):
    """The options of all commands that read a recipe, or a study: they set its fields."""

    model: ModelName = None
    weights: Weights = None


@dataclass(frozen=True)
class TrainOptions(RecipeOptions):
    """What a run of one recipe is asked for, by `tunebook train` or `python -m trainable`."""

    recipe: Annotated[Path, typer.Argument(metavar="RECIPE.yaml", help="A recipe.")]
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Folder for the model, metrics and recipe."),
    ] = None
    force: Force = False
    test: Annotated[
        bool, typer.Option("--test", help="Evaluate on the test images, with a confusion matrix.")
    ] = False
    predict: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="New folder for the masks of a segmentation: of the test images, or validation's.",
        ),
    ] = None
    as_json: Json = False
    debug: Annotated[
        list[str] | None,
        typer.Option(
            "--debug",
            metavar="TOOL",
            help="profile: record some steps; anomaly: stop at the first nan in a gradient; may be repeated.",
        ),
    ] = None
