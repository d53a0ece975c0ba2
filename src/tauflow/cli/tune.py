"""``tauflow tune``: good settings of a model for a task, found by trying."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tauflow._internal.sanitize import format_count

from .shared_options import (
    ClusterOption,
    ConfigOption,
    CsvOption,
    DeviceOption,
    EpochsOption,
    MetricOption,
    ModelOption,
    OptionOption,
    RecipeSetOption,
    RunsOption,
    SeedOption,
    TaskArgument,
    is_from_config,
    parse_recipe_options,
    read_config_table,
)
from .table_options import add_table_options


@add_table_options
def tune(
    ctx: typer.Context,
    task: TaskArgument = None,
    model: ModelOption = "cfc",
    hidden_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Neurons, or latent dimensions; by default several sizes are tried."
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Number of trials in all, including those of earlier calls.")
    ] = 20,
    epochs: EpochsOption = None,
    jobs: Annotated[int, typer.Option(min=1, help="Trials at a time, one thread each.")] = 1,
    cluster: ClusterOption = None,
    storage: Annotated[
        str | None,
        typer.Option(help="Address of a database for the study; by default a file in --runs."),
    ] = None,
    seed: SeedOption = 0,
    option: OptionOption = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(help="recipe.lr=[0.001,0.01] or model.NAME=[...]; may be repeated."),
    ] = None,
    runs: RunsOption = Path("runs"),
    device: DeviceOption = None,
    metric: MetricOption = None,
    settings: RecipeSetOption = None,
    config: ConfigOption = None,
    csv: CsvOption = None,
    *,
    table_options: dict[str, Any],
) -> None:
    """Search the settings of a model for the best validation score; repeat it to continue.

    What --option, --set, --hidden-size and --epochs give is not searched.
    """
    from tauflow.errors import ArgumentError
    from tauflow.runs.portfolio import AUTO
    from tauflow.runs.run import Run
    from tauflow.runs.tune import BEST_CONFIG_FILE
    from tauflow.runs.tune import tune as search
    from tauflow.training.defaults import DEFAULT_RECIPE, adapt_recipe

    from .argument_parsing import parse_key_values, split_names
    from .output import print_line, print_table, print_wrapped
    from .table_options import resolve_source

    if model == AUTO:
        raise ArgumentError(
            f"tune searches the settings of one model. 'tauflow run --model {AUTO}' chooses among "
            "models, each with its settings."
        )
    varied = parse_key_values(vary or [], option="--vary")
    # What is varied goes before a file's values; the command line must not say both.
    if "model.hidden_size" in varied and is_from_config(ctx, "hidden_size"):
        hidden_size = None
    filed = {
        k: v for k, v in read_config_table(config, "options").items() if f"model.{k}" not in varied
    }
    config_table = read_config_table(config, "recipe")
    said_of_recipe = parse_recipe_options(settings, config_table, epochs=epochs)
    fixed = {f"recipe.{name}" for name in config_table} - varied.keys()
    fixed |= {f"recipe.{name}" for name in said_of_recipe}
    run = Run(
        resolve_source(task, csv, table_options),
        model,
        hidden_size=hidden_size,
        options={**filed, **parse_key_values(option or [])},
        recipe=adapt_recipe(DEFAULT_RECIPE, {**config_table, **said_of_recipe}),
        seed=seed,
        device=device,
        metrics=split_names(",".join(metric or ())),
        runs_dir=runs,
        say=print_wrapped,
    )
    where: dict[str, Any] = {"jobs": jobs, "cluster": cluster, "storage": storage}
    tuned = search(run, trials=trials, fixed=fixed, vary=varied, **where)
    states = [state for _, _, state in tuned.trials]
    print_table(
        ("setting", "best", "importance"),
        [
            (name, f"{value:.4g}" if isinstance(value, float) else str(value), share)
            for name, value in tuned.settings.items()
            for share in [f"{tuned.importance[name]:.0%}" if name in tuned.importance else "–"]
        ],
        title=f"Best validation {tuned.metric}: {tuned.score:.4g}",
        caption=_describe_trials(states, has_importance=bool(tuned.importance)),
        numbers=(1, 2),
    )
    print_line(f"Study:  {tuned.directory.resolve()}")
    print_line(f"Train with them: tauflow run --config {tuned.directory / BEST_CONFIG_FILE}")


def _describe_trials(states: list[str], *, has_importance: bool) -> str:
    """Return the caption of the best settings."""
    text = (
        f"{format_count(len(states), 'trial')}: {states.count('complete')} completed, "
        f"{states.count('pruned')} pruned or diverged."
    )
    if has_importance:
        return text
    return f"{text} Importance takes more completed trials, with different scores."
