"""``model="auto"``: try a portfolio of models, and join those that predict unseen data best."""

from dataclasses import replace

from tauflow._internal.atomic_write import write_atomically
from tauflow.errors import ArgumentError
from tauflow.models.spread import SPREADS
from tauflow.training.evaluation_loop import evaluate
from tauflow.training.process_group import DistributedContext

from .job import RECORD_FILE
from .portfolio import AUTO, NETWORKS
from .portfolio_folds import fit_portfolio, has_independent_sequences, split_into_folds
from .run import Run
from .run_data import load_run_data
from .task import TaskRun, choose_run_directory, finish_run, remove_if_not_started


def run_auto(run: Run) -> TaskRun:
    """Choose a model by evidence: train a portfolio, and average what predicts unseen data best.

    Four recurrent networks and gradient boosting on summary features are tried. Of a table of
    independent ids the training split is cut in five folds; networks are compared on the first,
    and the two best and boosting are trained on all. An ensemble is chosen greedily by the
    predictions of what they were not trained on, as :class:`tauflow.estimators.SequenceClassifier`
    with ``model="auto"`` does. The validation split then chooses nothing but temperatures,
    thresholds and intervals that are asked for; a table without one has more to learn from. Of
    other data, such as windows of a series, the validation split chooses. Of classes the
    probabilities of each model are first made less sure by a temperature, where its validation
    data say so. The test split is not looked at before.

    Args:
        run: what is asked. ``time_limit`` is for boosting, training and the choice: a training ends
            when its share of what is left is used up. Reading the table and the report come on top.
            Without a limit the seed decides all numbers. A run that is resumed has all of its
            limit again.

    Returns:
        The run, whose ``trials`` say what was tried and chosen.

    Raises:
        ArgumentError: there are neither folds nor a validation split; options or an ensemble are
            asked for; or the time limit leaves no time for networks.
        NonFiniteError: no network could be trained.
    """
    _check_arguments(run)
    first = replace(run.spec, cell=NETWORKS[0])
    run_data = load_run_data(run, first)
    card = run_data.data.card
    if card.task == "binary":
        raise ArgumentError(
            "model='auto' is for a single target or several values, and the table has several "
            "labels. Name a model."
        )
    run.certainty.check(run_data.data)
    independent = has_independent_sequences(run.source)
    folds = split_into_folds(run_data, run.seed, independent=independent)
    job = run_data.as_read.make_job(first, run.recipe, run.seed)
    job = replace(job, row=AUTO, model=run.spec)
    directory = choose_run_directory(job.directory(run.runs_dir), resume=run.resume)
    with remove_if_not_started(directory, is_new=not run.resume):
        fit = fit_portfolio(
            folds,
            run.train,
            networks=NETWORKS,
            hidden_size=run.spec.hidden_size,
            recipe=run.recipe,
            seed=run.seed,
            time_limit=run.time_limit,
            directory=directory,
            say=run.say,
        )
    data = run_data.as_read.data
    shares = {trial.name: trial.share for trial in fit.trials if trial.share}
    record = replace(
        fit.record,
        config={**job.config, "shares": shares},
        config_hash=job.hash,
        valid=None if data.valid is None else evaluate(fit.model, data.valid, metric=card.metric),
        test=evaluate(fit.model, data.test, metric=card.metric),
    )
    write_atomically(directory / RECORD_FILE, (record.to_json() + "\n").encode())
    ended = finish_run(record, fit.model, run_data.as_read, directory, run.certainty)
    return replace(ended, trials=fit.trials, notes=(*fit.notes, *ended.notes))


def _check_arguments(run: Run) -> None:
    certainty = run.certainty
    if run.options:
        raise ArgumentError(
            f"model='{AUTO}' tries several models, whose options differ: {sorted(run.options)} "
            "cannot be given. Name a model to give it options."
        )
    is_ensemble = certainty.ensemble not in (None, 1)
    if is_ensemble or certainty.intervals in SPREADS:
        asked = "ensemble" if is_ensemble else f"intervals={certainty.intervals!r}"
        raise ArgumentError(
            f"model='{AUTO}' makes its ensemble itself, with conformal intervals: leave out "
            f"{asked}, or name a model."
        )
    if DistributedContext.current().is_distributed:
        raise ArgumentError(f"model='{AUTO}' trains in a single process. Name a model.")
