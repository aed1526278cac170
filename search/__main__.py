"""Defines the command line `tunebook`. Commands import what they need when called, so that --help is fast."""

from __future__ import annotations

import sys

if __name__ == "__main__":  # called as `python -m search`
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder where it runs: what follows is imported from what is installed
    from trainable.imports import import_installed_alone

    import_installed_alone()

from pathlib import Path
from typing import Annotated, Any

import typer

from search.commands import of_a_search
from search.commands.options import (
    FAILED,
    IMPORTS,
    INTERRUPTED,
    Address,
    Download,
    Folder,
    Json,
    Set,
    Weights,
    exit_with,
    on_this_machine,
    refuse_with_address,
    with_weights,
)
from search.jobs import cli
from search.running.log_file import keeping_stages
from trainable.collector import paused
from trainable.errors import UserError
from trainable.imports import import_installed_alone
from trainable.processes import ended_by_signals
from trainable.stages import shown_by, stage, waited_for
from trainable.terminal import StageLines, show_what_can_be_shown, tell
from trainable.tune.causes import in_words, refusal_in

app = typer.Typer(
    name="tunebook",
    help="Find the best training recipe of an image model on a Ray cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


DataPath = Annotated[str | None, typer.Option("--data", help="`digits`, a folder of images or a file.")]
WHAT = typer.Argument(
    metavar="RECIPE|STUDY|DIR|DATA", help="A recipe or study in YAML, a search folder, or images."
)
RecipeOrStudy = Annotated[str | None, WHAT]


@app.command()
def search(
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY.yaml]", help="A study; or use --data.")
    ] = None,
    data: DataPath = None,
    model: Annotated[
        str | None,
        typer.Option(help="resnet_small, unet_small, a torchvision name, timm/NAME or smp/DECODER/ENCODER."),
    ] = None,
    weights: Weights = None,
    trials: Annotated[int | None, typer.Option(help="How many trials.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of the longest trial.")] = None,
    hours: Annotated[float | None, typer.Option(help="Stop after this many hours.")] = None,
    cpus: Annotated[int | None, typer.Option(help="CPUs for each worker.")] = None,
    gpus: Annotated[
        str | None, typer.Option(help="GPUs for each worker: a number (0.5: two share one GPU), or auto.")
    ] = None,
    address: Address = None,
    storage: Annotated[str | None, typer.Option(help="Folder or URI that holds the searches.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the search: STORAGE/NAME.")] = None,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow's URI; default: STORAGE/mlflow.db.")
    ] = None,
    experiment: Annotated[str | None, typer.Option(help="Name of the MLflow experiment.")] = None,
    download: Download = False,
    again: Annotated[
        bool, typer.Option("--resume", help="Resume the search of this name if it exists.")
    ] = False,
    set_: Set = None,
) -> None:
    """Search for the best recipe: sample, train, prune, track and export."""
    with stage(IMPORTS), paused():
        from search.running import driver
    from search.study import study_asked
    from trainable.recipe.yamlfile import parse_setting

    flags: dict[str, Any] = {
        "data.path": data,
        "base.model": model,
        "base.model.weights": weights,
        "budget.trials": trials,
        "budget.epochs": epochs,
        "budget.hours": hours,
        "resources.cpus": cpus,
        "resources.gpus": None if gpus is None else parse_setting(f"resources.gpus={gpus}")[1],
        "storage": storage,
        "name": name,
        "tracking.uri": tracking_uri,
        "tracking.experiment": experiment,
    }
    asked = study_asked(study, flags, set_ or ())
    exit_with(driver.search(asked, address=address, download=download, again=again))


@app.command()
def resume(
    folder: Folder,
    address: Address = None,
    download: Download = False,
) -> None:
    """Resume an interrupted search from its checkpoints, with the same trials and MLflow runs."""
    with stage(IMPORTS), paused():
        from search.running import driver

    exit_with(driver.resume(folder, address=address, download=download))


@app.command()
def extend(
    folder: Folder,
    trials: Annotated[int, typer.Option(help="How many trials more.", min=1)],
    address: Address = None,
    download: Download = False,
) -> None:
    """Go on with a search, finished or not, with more trials; finalists are chosen anew at the end."""
    with stage(IMPORTS), paused():
        from search.running import driver

    exit_with(driver.extend(folder, trials, address=address, download=download))


of_a_search.add_to(app)


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE.yaml", help="A recipe.")],
    data: DataPath = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the model, metrics and recipe.")] = None,
    test: Annotated[
        bool, typer.Option("--test", help="Evaluate on the test images, with a confusion matrix.")
    ] = False,
    predict: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="New folder for the masks of a segmentation: of the test images, or validation's.",
        ),
    ] = None,
    set_: Set = None,
    json: Json = False,
    download: Download = False,
    debug: Annotated[
        list[str] | None,
        typer.Option(
            "--debug",
            metavar="TOOL",
            help="profile: record some steps; anomaly: stop at the first nan in a gradient; may be repeated.",
        ),
    ] = None,
) -> None:
    """Train one recipe, without a search."""
    from search.results.teachers import recipe_with_teacher
    from trainable.__main__ import train_file

    code = train_file(
        recipe,
        prepared=recipe_with_teacher,
        settings=set_ or (),
        data=data,
        out=out,
        test=test,
        predict=predict,
        download=download,
        as_json=json,
        debug=debug or (),
    )
    raise typer.Exit(code)


@app.command()
def shrink(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|RECIPE.yaml",
            parser=on_this_machine,
            help="A folder that `train --out` left, a search's, or a recipe, which is trained first.",
        ),
    ],
    flops: Annotated[
        float, typer.Option(help="The share of the operations that may be left, above 0 and below 1.")
    ] = 0.5,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of the fine-tuning; default: a fifth of the recipe's.", min=1)
    ] = None,
    lr_factor: Annotated[
        float | None, typer.Option(help="Its learning rate, as a share of the recipe's; default: 1.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many fine-tunings, each with a seed.", min=2)] = 3,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="The new folder for the pruned network.")
    ] = None,
    trial: Annotated[int | None, typer.Option(help="A trial's id, of a search; default: the best.")] = None,
    test: Annotated[
        bool, typer.Option("--test", help="Score the test images, too, and judge by these.")
    ] = False,
    scratch: Annotated[
        bool, typer.Option("--scratch", help="Also train the same layers from new weights, at full length.")
    ] = False,
    distillation: Annotated[
        bool,
        typer.Option(
            "--distillation",
            help="Fine-tune again, as long, with the unpruned network as teacher; -o writes that one.",
        ),
    ] = False,
    set_: Set = None,
    json: Json = False,
    download: Download = False,
) -> None:
    """Prune a trained network's channels to a share of its operations, fine-tune it, and say what it lost."""
    from search.commands.shrink import Asked, run_shrink
    from trainable.shrinking.fine_tuning import LR_FACTOR

    asked = Asked(
        source,
        flops,
        trial=trial,
        epochs=epochs,
        lr_factor=LR_FACTOR if lr_factor is None else lr_factor,
        seeds=seeds,
        test=test,
        scratch=scratch,
        distillation=distillation,
        settings=tuple(set_ or ()),
    )
    run_shrink(asked, out, as_json=json, download=download)


@app.command()
def explain(
    file: RecipeOrStudy = None,
    data: DataPath = None,
    weights: Weights = None,
    set_: Set = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List the fixed fields of a study or a search, too.")
    ] = False,
    download: Download = False,
) -> None:
    """Explain every range of a study or a search, or every value of a recipe, with its reason and source.

    For data alone, the default study is explained.
    """
    from search.commands.explain import explain_file

    settings = with_weights(set_, weights)
    explain_file(file, data=data, settings=settings, everything=everything, download=download)


@app.command(name="lr-find")
def lr_find(
    file: RecipeOrStudy = None,
    data: DataPath = None,
    set_: Set = None,
    steps: Annotated[int, typer.Option(help="Optimizer steps in each sweep.")] = 100,
    sweeps: Annotated[int, typer.Option(help="How many sweeps, each over other batches.")] = 3,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write .png, .html or .json.")] = None,
    json: Json = False,
    download: Download = False,
) -> None:
    """Find the band of learning rates at which a recipe's first steps train well."""
    from search.commands.inputs import load_target
    from search.commands.probes import find_lr

    target = load_target(file, data, set_ or (), download=download)
    found = find_lr(target, steps=steps, sweeps=sweeps, out=out, as_json=json, download=download)
    raise typer.Exit(0 if found else FAILED)


@app.command(name="batch-find")
def batch_find(
    file: RecipeOrStudy = None,
    data: DataPath = None,
    set_: Set = None,
    limit_gib: Annotated[
        float | None,
        typer.Option(help="Memory limit; default: all of a GPU, or half of a CPU's free memory."),
    ] = None,
    json: Json = False,
    download: Download = False,
) -> None:
    """Find the largest micro-batch that fits into memory, and the smallest that is as fast."""
    from search.commands.inputs import load_target
    from search.commands.probes import find_batch

    target = load_target(file, data, set_ or (), download=download)
    found = find_batch(target, limit_gib=limit_gib, as_json=json, download=download)
    raise typer.Exit(0 if found else FAILED)


@app.command()
def backbones(
    file: RecipeOrStudy = None,
    data: DataPath = None,
    set_: Set = None,
    models: Annotated[str | None, typer.Option(help="timm's names, with commas between.")] = None,
    size: Annotated[str | None, typer.Option(help="A list of candidates: small, medium or large.")] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="DIR", help="A folder with NAME.safetensors of each candidate.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="A new file for the study of the best three."),
    ] = None,
    json: Json = False,
    download: Download = False,
) -> None:
    """Compare pretrained networks on your images, by linear heads on their frozen features."""
    from search.commands.backbones import run_backbones

    run_backbones(
        file,
        data=data,
        settings=set_ or (),
        models=models,
        size=size,
        weights=weights,
        out=out,
        download=download,
        as_json=json,
    )


@app.command()
def check(
    target: Annotated[str, WHAT],
    full: Annotated[bool, typer.Option("--full", help="Decode and compare every image.")] = False,
    debug: Annotated[
        list[str] | None, typer.Option("--debug", metavar="TOOL", help="gradcheck: check gradients too.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Time for the checks that train, by default 60; --full and --debug take more.", min=1
        ),
    ] = None,
    write_exclusions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="List copies between parts in a new CSV file for data.exclude."),
    ] = None,
    address: Address = None,
    weights: Weights = None,
    set_: Set = None,
    json: Json = False,
    download: Download = False,
) -> None:
    """Check data, labels, network and first steps, in a minute, before hours are spent on them.

    With --address check whether each machine of a cluster can train, and nothing else.
    """
    from search.commands.check import CheckOptions, check_cluster, run_check

    if address is not None:
        refuse_with_address({"--full": full, "--debug": debug, "--write-exclusions": write_exclusions})
        settings = with_weights(set_, weights)
        can = check_cluster(target, address, settings=settings, as_json=json, download=download)
        raise typer.Exit(0 if can else FAILED)
    options = CheckOptions(full, debug or (), seconds, write_exclusions, json)
    sound = run_check(target, options, settings=with_weights(set_, weights), download=download)
    raise typer.Exit(0 if sound else FAILED)


cli.add_to(app)


def main() -> None:
    """Run the command line; a person's mistake is one message and an exit code, never a traceback.

    At Ctrl-C, SIGTERM and a closed terminal every command ends the processes that it has started, and removes
    what it has half written.
    """
    import_installed_alone()  # an older installation calls this function, and not search.program
    show_what_can_be_shown()
    try:
        with waited_for(), keeping_stages(), ended_by_signals(), StageLines() as lines, shown_by(lines):
            app()
    except UserError as error:
        tell(f"tunebook: {error}", sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if (refused := refusal_in(error)) is None:
            raise
        tell(f"tunebook: {in_words(refused)}; make room, and call this again", sys.stderr)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
