"""The models that ``model="auto"`` has tried, as a small table."""

from tauflow.runs.task import TaskRun
from tauflow.runs.time_limits import format_duration

from .document import Listing
from .metric_format import format_metric_name, format_parameter_count, format_score


def list_trials(run: TaskRun) -> list[Listing]:
    """Return a table of the models that were tried, those that were chosen first; if there are."""
    if not run.trials:
        return []
    metric = run.record.metric
    criterion = run.record.config["recipe"]["select_by"] or metric
    trials = sorted(run.trials, key=lambda trial: (-trial.share, -trial.epochs))
    rows = [
        [
            trial.name,
            str(trial.epochs) if trial.epochs else "–",
            format_score(trial.valid, criterion),
            format_score(trial.test, metric),
            format_parameter_count(trial.parameters),
            format_duration(trial.seconds),
            f"{trial.share:.0%}" if trial.share else "–",
        ]
        for trial in trials
    ]
    headers = (
        "model",
        "epochs",
        f"validation {format_metric_name(criterion)}",
        f"test {format_metric_name(metric)}",
        "parameters",
        "time",
        "share",
    )
    caption = (
        "Share: of the answer, chosen greedily by the score of the mean on what was held out from "
        "training. The test split chose nothing. With folds, networks that were not among the two "
        "best of the first were trained on that alone."
    )
    return [Listing("What was tried", headers, rows, caption)]
