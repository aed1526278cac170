"""What commands can be asked for.

The arguments and options of a command are the fields of a dataclass, which it takes as its one parameter; a
command with at most two of them takes these as its parameters instead. What several commands have is declared
once, here or in `trainable.train_options`, with the field of a study and of a recipe that it sets. Help,
completion and docs/cli.md come from these declarations.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

import typer
from typer.models import OptionInfo

from search.running.cluster_token import send_token
from trainable.bench import Bench, DeviceChoice, Say, bench_on, silent
from trainable.collector import load_torch
from trainable.errors import UserError
from trainable.extras import needing_run
from trainable.files.store import is_uri
from trainable.terminal import tell_json
from trainable.train_options import (
    DataOptions,
    Device,
    Download,
    Force,
    Json,
    RecipeOptions,
    Set,
    Sets,
    taking_fields,
)

EXAMPLE = "Example: "
SCHEMA = 1  # of the answers that `tell_fields` prints
OPTION = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]+|-o)(?![\w-])")  # as messages name them
# what a function calls an option, where that is not its name with "_" for "-"
PARAMETERS = {"-o": "out", "--all": "everything", "--from": "folder", "--set": "settings"}
LEAST_STEPS = 30  # that of trainable.probes.lr_find, which imports torch
FAILED, HUNG_UP, INTERRUPTED, TERMINATED = 1, 129, 130, 143
IMPORTS = "loading torch and Ray"  # a stage of commands that search
# the exit code of a command that drives a search, by how that ended
EXIT_CODES = {
    "finished": 0,
    "failed": FAILED,
    "broken off": FAILED,
    "interrupted": INTERRUPTED,
    "terminated": TERMINATED,
    "hung up": HUNG_UP,
}

Taken = ParamSpec("Taken")
Answer = TypeVar("Answer")
Options = TypeVar("Options")


def _with_token(address: str | None) -> str | None:
    """Set Ray's token variable now: Ray, which is imported later, reads its settings only once. Raises
    UserError for what is the address of no cluster."""
    if address is not None:
        send_token(address)
    return address


def search_folder(address: str) -> Path:
    """Return a search's folder on this machine, as `on_this_machine` does. Raises UserError without one."""
    from search.record.home import NO_SEARCH
    from search.study import STUDY_FILE

    folder = on_this_machine(address)
    if not (folder / STUDY_FILE).exists():
        raise UserError(f"{folder}: {NO_SEARCH} (no {STUDY_FILE} in it); give STORAGE/NAME")
    return folder


def search_or_recipe(address: str) -> Path:
    """Return a recipe's file, or a search's folder on this machine. Raises UserError where it holds none."""
    return Path(address) if Path(address).is_file() else search_folder(address)


def on_this_machine(address: str) -> Path:
    """Return a search's folder on this machine; for a search in an object store, its copy."""
    if not is_uri(address):
        return Path(address)
    from search.record.storage import local_folder

    return local_folder(address)


def _searches() -> list[str]:
    """Return the searches of the default storage, for completion; the shell completes other folders."""
    return sorted(str(each.parent) for each in Path("searches").glob("*/study.yaml"))


Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        parser=search_folder,
        help="A search's folder or URI: STORAGE/NAME.",
        autocompletion=_searches,
    ),
]
SearchOrRecipe = Annotated[
    Path,
    typer.Argument(
        metavar="DIR|RECIPE",
        parser=search_or_recipe,
        help="A search's folder or URI: STORAGE/NAME; or a recipe's file.",
        autocompletion=_searches,
    ),
]
ClusterAddress = Annotated[
    str | None, typer.Option(callback=_with_token, help="A running Ray cluster: auto or HOST:PORT.")
]


def _objectives() -> list[str]:
    from trainable.training.metrics import OBJECTIVES

    return list(OBJECTIVES)


MetricName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The metric that a search optimises, such as val_macro_f1.",
        autocompletion=_objectives,
    ),
    Sets("objective.metric"),
]


def _gpus(written: str) -> Any:
    from trainable.recipe.yamlfile import parse_setting

    return parse_setting(f"resources.gpus={written}")[1]


@dataclass(frozen=True, kw_only=True)
class StudyOptions(RecipeOptions):
    """The options that set a study's fields, and a recipe's, the same for all commands that read one."""

    metric: MetricName = None


InputFile = Annotated[
    str | None,
    typer.Argument(
        metavar="RECIPE|STUDY|DIR|DATA", help="A recipe or study in YAML, a search folder, or images."
    ),
]


@dataclass(frozen=True, kw_only=True)
class InputOptions(StudyOptions):
    """What a command looks at: one input, and the options that change it."""

    file: InputFile = None


def command(
    app: typer.Typer, example: str, *, name: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to a command line. The fields of a dataclass that it takes, or else its parameters, are
    the command's arguments and options, in their order. The example stands at the end of its help."""

    def add(run: Callable[..., None]) -> Callable[..., None]:
        taken = [each for name, each in get_type_hints(run).items() if name != "return"]
        app.command(name, epilog=f"{EXAMPLE}{example}")(
            taking_fields(run, taken[0]) if is_dataclass(taken[0]) else run
        )
        return run

    return add


def function_of_command(run: Callable[Taken, Answer]) -> Callable[Taken, Answer]:
    """Make a function of `tunebook` of what does a command's work: it says how to get a package that is not
    installed, and, where a message names an option, what the parameter is called."""
    parameters = signature(run).parameters

    @wraps(run)
    def call(*args: Taken.args, **kwargs: Taken.kwargs) -> Answer:
        try:
            with needing_run(f"tunebook.{run.__name__}"):
                return run(*args, **kwargs)
        except UserError as error:
            options = dict.fromkeys(OPTION.findall(str(error)))
            names = {each: PARAMETERS.get(each, each.strip("-").replace("-", "_")) for each in options}
            if told := [f"{each} is {name}=" for each, name in names.items() if name in parameters]:
                error.add_note(f"in Python {', '.join(told)}")
            raise

    return call


def within_limits(options: Options) -> Options:
    """Return a command's options. Raises UserError for a number that the command line would refuse."""
    for name, hint in get_type_hints(type(options), include_extras=True).items():
        value = getattr(options, name)
        for each in getattr(hint, "__metadata__", ()):
            if value is None or not isinstance(each, OptionInfo) or each.min is None:
                continue
            if not value >= each.min or (each.max is not None and value > each.max):
                expected = f"{each.min:g} or more" if each.max is None else f"{each.min:g} to {each.max:g}"
                raise UserError(f"{name}={value!r}: expected {expected}")
    return options


def bench_of(options: DataOptions, say: Say = silent) -> Bench:
    """Return the bench that a command's options ask for. Raises UserError for a device that is not there."""
    if options.device == DeviceChoice.CUDA:
        load_torch()
    return bench_on(options.device, may_fetch=options.download, say=say)


@dataclass(frozen=True, kw_only=True)
class NewSearchOptions(StudyOptions):
    """What a new search is asked for, on this machine or on a cluster."""

    trials: Annotated[int | None, typer.Option(help="How many trials."), Sets("budget.trials")] = None
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of the longest trial."), Sets("budget.epochs")
    ] = None
    hours: Annotated[float | None, typer.Option(help="Stop after this many hours."), Sets("budget.hours")] = (
        None
    )
    minutes: Annotated[
        float | None,
        typer.Option(help="Stop after this many minutes."),
        Sets("budget.hours", value=lambda minutes: minutes / 60.0),
    ] = None
    target: Annotated[
        float | None,
        typer.Option(help="End when a finished trial has this score, such as 0.95."),
        Sets("budget.target"),
    ] = None
    price_per_gpu_hour: Annotated[
        float | None,
        typer.Option(help="What a GPU costs in an hour: then the forecast says the price."),
        Sets("budget.price_per_gpu_hour"),
    ] = None
    cpus: Annotated[int | None, typer.Option(help="CPUs for each worker."), Sets("resources.cpus")] = None
    gpus: Annotated[
        str | None,
        typer.Option(help="GPUs for each worker: a number (0.5: two share one GPU), or auto."),
        Sets("resources.gpus", value=_gpus),
    ] = None
    name: Annotated[str | None, typer.Option(help="Name of the search: STORAGE/NAME."), Sets("name")] = None
    storage: Annotated[
        str | None, typer.Option(help="Folder or URI that holds the searches."), Sets("storage")
    ] = None
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow's URI; default: STORAGE/mlflow.db."), Sets("tracking.uri")
    ] = None
    experiment: Annotated[
        str | None, typer.Option(help="Name of the MLflow experiment."), Sets("tracking.experiment")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SearchOptions(NewSearchOptions):
    """What `tunebook search` is asked for."""

    file: Annotated[str | None, typer.Argument(metavar="STUDY.yaml|DATA", help="A study, or images.")] = None
    address: ClusterAddress = None
    again: Annotated[bool, typer.Option("--resume", help="Resume the search of this name if it exists.")] = (
        False
    )
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Time some recipes, say what the search would take, and start no trial."
        ),
    ] = False
    as_json: Json = False


@dataclass(frozen=True)
class ResumeOptions:
    """What `tunebook resume` is asked for."""

    folder: Folder
    address: ClusterAddress = None
    as_json: Json = False
    download: Download = False


@dataclass(frozen=True)
class ExtendOptions:
    """What `tunebook extend` is asked for."""

    folder: Folder
    trials: Annotated[int, typer.Option(help="How many trials more.", min=1)]
    address: ClusterAddress = None
    as_json: Json = False
    download: Download = False


@dataclass(frozen=True)
class AuditPruningOptions:
    """What `tunebook audit-pruning` is asked for."""

    folder: Folder
    share: Annotated[
        float,
        typer.Option(help="The share of each rung's stopped trials to train to their end.", min=0, max=1),
    ] = 0.1
    address: ClusterAddress = None
    as_json: Json = False
    download: Download = False


@dataclass(frozen=True)
class ShrinkOptions:
    """What `tunebook shrink` is asked for."""

    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|RECIPE.yaml",
            parser=on_this_machine,
            help="A folder that `train --out` left, a search's, or a recipe, which is trained first.",
        ),
    ]
    flops: Annotated[
        float, typer.Option(help="The share of the operations that may be left, above 0 and below 1.")
    ] = 0.5
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of the fine-tuning; default: a fifth of the recipe's.", min=1)
    ] = None
    lr_factor: Annotated[
        float | None, typer.Option(help="Its learning rate, as a share of the recipe's; default: 1.")
    ] = None
    seeds: Annotated[int, typer.Option(help="How many fine-tunings, each with a seed.", min=2)] = 3
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="The new folder for the pruned network.")
    ] = None
    trial: Annotated[
        int | None, typer.Option(help="A trial's number, of a search; default: the best one.")
    ] = None
    test: Annotated[bool, typer.Option("--test", help="Score the test images, too, and judge by these.")] = (
        False
    )
    scratch: Annotated[
        bool, typer.Option("--scratch", help="Also train the same layers from new weights, at full length.")
    ] = False
    distillation: Annotated[
        bool,
        typer.Option(
            "--distillation",
            help="Fine-tune again, as long, with the unpruned network as teacher; -o writes that one.",
        ),
    ] = False
    force: Force = False
    device: Device = None
    settings: Set = None  # of the recipe of the fine-tuning
    as_json: Json = False
    download: Download = False


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(InputOptions):
    """What `tunebook explain` is asked for."""

    everything: Annotated[
        bool, typer.Option("--all", help="List the fixed fields of a study or a search, too.")
    ] = False
    as_json: Json = False


@dataclass(frozen=True, kw_only=True)
class LrFindOptions(InputOptions):
    """What `tunebook lr-find` is asked for."""

    steps: Annotated[int, typer.Option(help="Optimizer steps in each sweep.", min=LEAST_STEPS)] = 100
    sweeps: Annotated[int, typer.Option(help="How many sweeps, each over other batches.", min=1)] = 3
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write .png, .html or .json.")] = None
    force: Force = False
    as_json: Json = False


@dataclass(frozen=True, kw_only=True)
class BatchFindOptions(InputOptions):
    """What `tunebook batch-find` is asked for."""

    limit_gib: Annotated[
        float | None,
        typer.Option(help="Memory limit; default: all of a GPU, or half of a CPU's free memory."),
    ] = None
    as_json: Json = False


def _names(texts: list[str] | None) -> list[str]:
    return [name.strip() for text in texts or () for name in text.split(",")]


@dataclass(frozen=True, kw_only=True)
class BackbonesOptions(DataOptions):
    """What `tunebook backbones` is asked for."""

    file: InputFile = None
    models: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", callback=_names, help="timm's names, with commas between."),
    ] = None
    size: Annotated[str | None, typer.Option(help="A list of candidates: small, medium or large.")] = None
    weights: Annotated[
        str | None, typer.Option(metavar="DIR", help="A folder with NAME.safetensors of each candidate.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="A new file for the study of the best three."),
    ] = None
    force: Force = False
    as_json: Json = False


@dataclass(frozen=True, kw_only=True)
class CheckOptions(InputOptions):
    """What `tunebook check` is asked for."""

    full: Annotated[bool, typer.Option("--full", help="Decode and compare every image.")] = False
    debug: Annotated[
        list[str] | None, typer.Option("--debug", metavar="TOOL", help="gradcheck: check gradients too.")
    ] = None
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Time for the checks that train, by default 60; --full and --debug take more.", min=1
        ),
    ] = None
    minutes: Annotated[float | None, typer.Option(help="The same in minutes.", min=1 / 60)] = None
    write_exclusions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="List copies between parts in a new CSV file for data.exclude."),
    ] = None
    address: ClusterAddress = None
    as_json: Json = False

    @property
    def title(self) -> str:
        """What is checked, as a person named it."""
        return str(self.file if self.file is not None else self.data)

    @property
    def time(self) -> float | None:
        """The seconds that are given, in these or in minutes; None where none are."""
        return self.seconds if self.minutes is None else 60.0 * self.minutes

    @property
    def checks(self) -> bool:
        """The list of copies is made alone, unless an option of the checks is given with it."""
        return self.write_exclusions is None or self.time is not None or bool(self.debug)


@dataclass(frozen=True)
class ReportOptions:
    """What `tunebook report` is asked for."""

    folder: Folder
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="FILE.html, or FILE.json; default: both, in DIR."),
    ] = None
    compare: Annotated[
        list[str] | None,
        typer.Option("--compare", metavar="DIR", help="Another search, beside this one; may be repeated."),
    ] = None
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve the page at 127.0.0.1, and follow the search.")
    ] = False
    port: Annotated[int, typer.Option(help="Port of --watch.", min=1, max=65535)] = 5050
    force: Force = False
    as_json: Json = False


@dataclass(frozen=True)
class UiOptions:
    """What `tunebook ui` is asked for."""

    folder: Folder
    port: Annotated[int, typer.Option(help="Port of the page.", min=1, max=65535)] = 5000


class ExportFormat(StrEnum):
    """The formats that `export` writes."""

    TUNEBOOK = "tunebook"
    TIMM = "timm"
    TORCHVISION = "torchvision"
    PADDLECLAS = "paddleclas"
    SCRIPT = "script"


@dataclass(frozen=True)
class ExportOptions:
    """What `tunebook export` is asked for."""

    source: SearchOrRecipe
    # required on the command line; from Python the recipe may be returned alone
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="The file to write.")]
    trial: Annotated[int | None, typer.Option(help="A trial's number; default: the best one.")] = None
    simplify: Annotated[
        bool, typer.Option("--simplify", help="Leave out what gains nothing: each technique off in turn.")
    ] = False
    finalize: Annotated[
        bool,
        typer.Option("--finalize", help="Choose raw or averaged weights, and views at test, by validation."),
    ] = False
    seeds: Annotated[
        int | None,
        typer.Option(help="Runs of each variant, for --simplify and --finalize; default: 3.", min=2),
    ] = None
    verify: Annotated[
        int | None,
        typer.Option(metavar="N", help="Train it N times from the file alone; score the test part.", min=3),
    ] = None
    form: Annotated[
        ExportFormat, typer.Option("--format", help="Another program's format, or one script in PyTorch.")
    ] = ExportFormat.TUNEBOOK
    bare: Annotated[bool, typer.Option("--bare", help="Write the recipe without comments.")] = False
    gpus: Annotated[int | None, typer.Option(help="Move the recipe to so many GPUs.", min=1)] = None
    batch: Annotated[
        int | None, typer.Option(help="Move it to this effective batch, over all GPUs.", min=1)
    ] = None
    images: Annotated[
        Path | None,
        typer.Option(metavar="NEW_DIR", help="Write the parts of the data there too, as class folders."),
    ] = None
    force: Force = False
    device: Device = None
    as_json: Json = False
    download: Download = False

    @property
    def as_recipe(self) -> bool:
        """Whether a recipe of tunebook is written, for the hardware that it was trained on."""
        return self.form == ExportFormat.TUNEBOOK and (self.gpus, self.batch, self.images) == (None,) * 3

    @property
    def improves(self) -> bool:
        """Whether the recipe itself is changed, as far as that gains."""
        return self.simplify or self.finalize

    @property
    def trains(self) -> bool:
        """Whether the recipe is trained again before it is written."""
        return self.improves or self.verify is not None


@dataclass(frozen=True)
class BundleOptions:
    """What `tunebook bundle` is asked for."""

    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            parser=on_this_machine,
            help="A search's folder or URI, or a folder that `train --out` left.",
            autocompletion=_searches,
        ),
    ]
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="The new folder to write.")]
    trial: Annotated[int | None, typer.Option(help="A trial's number; default: the best one.")] = None
    force: Force = False
    as_json: Json = False


@dataclass(frozen=True)
class DeleteOptions:
    """What `tunebook delete` is asked for."""

    folder: Folder
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False
    as_json: Json = False


@dataclass(frozen=True)
class RefineOptions:
    """What `tunebook refine` is asked for."""

    folder: Folder
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="A new file for the next study; no file is written if nothing is to change.",
        ),
    ] = None
    force: Force = False
    as_json: Json = False


def aside(as_json: bool) -> AbstractContextManager[object]:
    """Leave standard output to JSON where that is asked for: what a person reads in the block goes to
    standard error."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def tell_fields(fields: Mapping[str, object]) -> None:
    """Print as JSON what a command answers."""
    tell_json(json.dumps({"schema": SCHEMA, **fields}, indent=2, allow_nan=False))


def exit_with(state: str) -> None:
    """End the command with the exit code of how a search ended."""
    raise typer.Exit(EXIT_CODES[state])
