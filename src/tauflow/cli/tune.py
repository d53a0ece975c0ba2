"""``tauflow tune``: good settings of a model for a task, found by trying."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tauflow.plain_text import counted

from .own_table import takes_table
from .recipe import Cluster, Config, Device, Metrics, config_table, from_file, recipe_changes


@takes_table
def tune(
    ctx: typer.Context,
    task: Annotated[
        str | None, typer.Argument(help="A data set, your own table, or a stored folder.")
    ] = None,
    model: Annotated[str, typer.Option(help="A model; see 'tauflow models'.")] = "cfc",
    hidden_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Neurons, or latent dimensions; by default several sizes are tried."
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Number of trials in all, including those of earlier calls.")
    ] = 20,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of each trial.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Trials at a time, one thread each.")] = 1,
    cluster: Cluster = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed for settings, weights and shuffling.")
    ] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="key=value for the model: a fixed setting that is not searched; may be repeated."
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(help="recipe.lr=[0.001,0.01] or model.NAME=[...]; may be repeated."),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder of studies and runs.")] = Path("runs"),
    device: Device = None,
    metric: Metrics = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="recipe.lr=0.01, or any field of the recipe: a fixed setting that is not "
            "searched; may be repeated.",
        ),
    ] = None,
    config: Config = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Your own table.")] = None,
    *,
    said: dict[str, Any],
) -> None:
    """Search the settings of a model for the best validation score; repeat it to continue."""
    from tauflow.runs.report.study import short, write_study
    from tauflow.runs.tune import BEST
    from tauflow.runs.tune import tune as search
    from tauflow.training.defaults import RECIPE, adapted

    from .options import all_names_in, key_values
    from .output import print_table, say, say_prose
    from .own_table import one_source

    varied = key_values(vary or [], option="--vary")
    # What is varied goes before a file's values; the command line must not say both.
    if "model.hidden_size" in varied and from_file(ctx, "hidden_size"):
        hidden_size = None
    filed = {k: v for k, v in config_table(config, "options").items() if f"model.{k}" not in varied}
    own = config_table(config, "recipe")
    said_of_recipe = recipe_changes(settings, own, epochs=epochs)
    fixed = {f"recipe.{name}" for name in own} - varied.keys()
    found = search(
        one_source(task, csv, said),
        model,
        trials=trials,
        hidden_size=hidden_size,
        options={**filed, **key_values(option or [])},
        recipe=adapted(RECIPE, {**own, **said_of_recipe}),
        fixed={*fixed, *(f"recipe.{name}" for name in said_of_recipe)},
        vary=varied,
        seed=seed,
        jobs=jobs,
        cluster=cluster,
        device=device,
        metrics=all_names_in(metric),
        runs_dir=Path(os.path.expanduser(runs)),
        say=say_prose,
    )
    states = [state for _, _, state in found.trials]
    print_table(
        ("setting", "best", "importance"),
        [
            (name, short(value), share)
            for name, value in found.settings.items()
            for share in [f"{found.importance[name]:.0%}" if name in found.importance else "–"]
        ],
        title=f"Best validation {found.metric}: {found.score:.4g}",
        caption=(
            f"{counted(len(states), 'trial')}: {states.count('complete')} completed, "
            f"{states.count('pruned')} pruned, {states.count('fail')} diverged."
        ),
        numbers=(1, 2),
    )
    say(f"Report: {write_study(found).resolve()}")
    say(f"Train with them: tauflow run --config {found.directory / BEST}")
