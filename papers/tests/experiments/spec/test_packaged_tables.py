"""The tables that come with the package: their numbers, and that every row can be built."""

from dataclasses import replace

import pytest

from tauflow import cells, models
from tauflow.cells.registry import MODELS
from tauflow.data.registry import DATASETS
from tauflow.models import get_model_entry
from tauflow.models.registry import WHOLE_MODELS, get_model_info
from tauflow.training import LOSSES, METRICS
from tauflow_papers.experiments import list_experiments, load_experiment, parameter_counts
from tauflow_papers.experiments.report.table import is_causal
from tauflow_papers.experiments.spec.experiment import BASELINES, ENSEMBLE, READY, list_members
from tauflow_papers.theory.driving import DRIVING_MODELS, driving_model

TABLES = {
    *("ltc-table-2", "ltc-table-3", "ltc-table-4", "ltc-table-5", "ltc-table-6"),
    *("cfc-table-3", "cfc-table-4", "cfc-table-5", "cfc-table-6", "cfc-table-7"),
    *("ode-lstm-table-2", "ode-lstm-table-3", "ode-lstm-table-4", "ode-lstm-table-5"),
    *("gnode-table-1", "gnode-table-3", "gnode-table-4", "gnode-table-5"),
    *("gnode-table-6", "gnode-table-7", "gnode-table-8"),
    *("gnode-figure-1", "gnode-figure-2", "gnode-figure-3", "gnode-figure-6"),
    "leaderboards",
    "one-budget",
    "physionet-forecast",
    "physionet-mortality",
    "walker2d-change",
}


def cards(experiment):
    """Return the cards that loaders give, without loading."""
    cards_of_parts = {}
    for part in {row.part.name: row.part for row in experiment.rows}.values():
        card, options = DATASETS[part.dataset], part.options
        if options.get("inputs") == "values":
            card = replace(card, input_size=41)
        if options.get("time") == "feature":
            card = replace(card, input_size=18)
        if "bits" in options:
            bits = options["bits"]
            card = replace(card, input_size=bits, target_size=bits, targets=())
        if options.get("protocol") == "pyomnits":
            card = replace(
                card, input_size=37, target_size=36, targets=(), query_targets=tuple(range(36))
            )
        cards_of_parts[part.name] = card
    return cards_of_parts


def test_every_table_is_here():
    assert set(list_experiments()) == TABLES


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_says_what_it_runs(name):
    experiment = load_experiment(name)
    assert experiment.name == name
    assert (experiment.command is None) == any(row.status == READY for row in experiment.rows)
    for row in experiment.rows:
        if row.status == READY:
            card = DATASETS[row.part.dataset]
            members, _ = list_members(row.model) if row.model.cell == ENSEMBLE else ([], 1)
            for spec in members or [row.model]:
                assert spec.cell in BASELINES or get_model_entry(spec.cell)
            assert LOSSES[row.loss].target == LOSSES[card.loss].target
            assert METRICS[row.metric].target == METRICS[card.metric].target
            validates = card.sizes[1] or {"setting", "holdout"} & set(row.part.options)
            assert row.recipe.select == "last" or validates
            assert row.recipe.epochs > 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_model_has_the_published_number_of_parameters(name):
    experiment = load_experiment(name)
    if experiment.command is not None:
        return
    counts = parameter_counts(experiment, cards(experiment))
    ready = [row for row in experiment.rows if row.status == READY]
    assert set(counts) == {row.name for row in ready}
    published = {row.name: row.published.parameters for row in ready if row.published.parameters}
    assert {row: counts[row] for row in published} == published
    assert bool(published) == (name.startswith("gnode-table") and name != "gnode-table-1")


def test_counted_tables_count_right():
    lanes = load_experiment("cfc-table-3")
    head = 226_644
    for name in DRIVING_MODELS:
        total = sum(p.numel() for p in driving_model(name).parameters())
        assert lanes.row(f"{name}/total").published.parameters == total
        if name != "cnn":
            assert lanes.row(f"{name}/recurrent part").published.parameters == total - head
    best = parameter_counts(load_experiment("gnode-table-4"))
    for row in load_experiment("gnode-table-3").rows:
        if row.part.name == "best":
            assert row.published.parameters == best[row.name.replace("/best", "/drop-30")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cfc-table-3", "gnode-table-3"])
def test_commands_run(name, capsys):
    command = load_experiment(name).command
    assert command.startswith('python -c "')
    code = command.removeprefix('python -c "').removesuffix('"')
    exec(code, {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert "cfc" in printed or "gnode" in printed


@pytest.mark.parametrize(
    ("experiment", "row", "mean", "std"),
    [
        ("ltc-table-3", "lstm/gesture", 0.6457, 0.0059),
        ("ltc-table-3", "neural-ode/har", 0.9726, 0.0010),
        ("ltc-table-3", "ct-gru/seq-mnist", 0.9827, 0.0014),
        ("ltc-table-3", "neural-ode/traffic", 1.512, 0.179),
        ("ltc-table-3", "ltc/traffic-transposed", 0.099, 0.0095),
        ("ltc-table-3", "ltc/ozone", 0.302, 0.0155),
        ("ltc-table-4", "ltc", 0.8548, 0.0040),
        ("ltc-table-5", "ltc", 0.882, 0.005),
        ("ltc-table-5", "rnn-vae", 0.343, 0.040),
        ("ltc-table-6", "lstm", 2.500, 0.140),
        ("ltc-table-6", "ltc", 2.308, 0.015),
        ("cfc-table-5", "cfc", 0.839, 0.002),
        ("cfc-table-5", "cfc-nogate/lagged", 0.840, 0.003),
        ("cfc-table-5", "latent-ode-rnn/observed", 0.781, 0.018),
        ("cfc-table-6", "cfc-mmrnn/no-time", 0.883, 0.001),
        ("cfc-table-6", "gru", 0.862, None),
        ("cfc-table-7", "cfc", 0.643, 0.006),
        ("cfc-table-7", "transformer", 0.761, 0.032),
        ("ode-lstm-table-3", "rnn-decay", 0.6289, 0.0387),
        ("ode-lstm-table-4", "augmented-lstm", 0.8210, 0.0436),
        ("ode-lstm-table-5", "ode-lstm", 0.883, 0.014),
        ("gnode-table-1", "lem/walker2d", 0.709, 0.009),
        ("gnode-table-4", "node/drop-50", 0.807, 0.247),
        ("gnode-table-5", "gnode-v1", 0.552, 0.019),
        ("gnode-table-6", "gnode-v3", 0.844, 0.002),
        ("gnode-table-7", "node-v2", 0.169, 0.015),
        ("gnode-table-8", "gnode-v2", 0.762, 0.005),
        ("gnode-figure-2", "gnode/points", 3.203e-8, None),
    ],
)
def test_published_numbers(experiment, row, mean, std):
    number = load_experiment(experiment).row(row).published
    assert (number.mean, number.std) == (mean, std)


def test_hourly_power_is_trained_as_published_power_and_has_no_published_number():
    ltc = load_experiment("ltc-table-3")
    published = [row for row in ltc.rows if row.part.name == "power"]
    assert len(published) == 5
    for row in published:
        hourly = ltc.row(f"{row.name}-hourly")
        assert (hourly.part.dataset, hourly.part.options) == ("power-hourly", {})
        assert (hourly.published.mean, hourly.published.absent) == (None, "not in the paper")
        assert "Not the published data" in hourly.note
        same = ("title", "loss", "metric", "model", "recipe", "search")
        assert [getattr(hourly, name) for name in same] == [getattr(row, name) for name in same]


def test_published_numbers_lie_where_their_metric_does():
    for name in TABLES:
        for row in load_experiment(name).rows:
            mean = row.published.mean
            if mean is not None and row.metric and METRICS[row.metric].higher_is_better:
                assert 0.1 <= mean <= 1.0, f"{name}, {row.name}: a fraction?"
                assert row.published.std is None or row.published.std < 0.25


def test_settings_are_those_of_the_papers():
    ltc = {part: load_experiment("ltc-table-3").row(f"ltc/{part}") for part in ("har", "seq-mnist")}
    assert [row.recipe.lr for row in ltc.values()] == [0.01, 0.005]
    ozone = load_experiment("ltc-table-3").row("lstm/ozone")
    assert (ozone.recipe.class_weights, ozone.metric) == ((0.1, 1.6), "f1")
    clipped = load_experiment("ltc-table-3").row("neural-ode/power").model
    assert (clipped.options["clip"], clipped.head_init) == (10.0, "truncated-0.05")
    cfc = load_experiment("cfc-table-5")
    assert cfc.row("cfc").recipe.class_weights == (1.0, 11.69)
    assert cfc.row("cfc").model.options["time_sign"] == 1
    assert cfc.row("cfc/lagged").model.options["time_sign"] == -1
    imdb = load_experiment("cfc-table-6").row("cfc-nogate")
    assert (imdb.model.embedding_size, imdb.model.embedding_dropout) == (192, 0.2)
    assert (imdb.recipe.l2, imdb.recipe.epochs) == (2.7e-5, 37)
    grown = load_experiment("gnode-table-4").row("gnode-v2/drop-70").recipe
    assert (grown.curriculum[-1] + 14, grown.epochs) == (182, 100 * (len(grown.curriculum) + 1))
    assert (grown.select_by, grown.shuffle) == ("cross_entropy", False)
    assert [len(row.search) for row in load_experiment("gnode-figure-3").rows[:1]] == [9]
    hundred = load_experiment("gnode-table-1").row
    assert (len(hundred("gru/speech").search), hundred("gru/speech").search_part) == (18, None)
    characters = hundred("gru/characters")
    drops = [part.options for part in (characters.search_part, characters.part)]
    assert drops == [{"drop": 0.3}, {"drop": 0.7}]
    slow = load_experiment("gnode-table-8").row("mgru").model.options
    assert (slow["tau"], slow["initial_state"]) == (100.0, "affine")


def test_every_causal_network_has_the_same_budget():
    """A new model belongs into the comparison, or among the variants that it leaves out."""
    experiment = load_experiment("one-budget")
    networks = {row.model.cell for row in experiment.rows}
    for row in experiment.rows:
        assert is_causal(row)
        assert row.recipe == experiment.row(f"lstm/{row.part.name}").recipe
        assert [setting.recipe.lr for setting in row.search] == [0.001, 0.004, 0.016]
        assert (row.model.hidden_size, row.model.options) == (64, {})
    variants = {
        *("ltc-neuronal", "wired-cfc", "ct-rnn-ltc", "ct-gru-ltc", "convolutional"),
        *("elman-euler", "gru-euler", "lstm-euler", "lem-forward", "bidirectional-rnn"),
        *("ode-lstm-torch", "ct-lstm-released", "phased-lstm-released", "rnn-decay-released"),
        *("gru-d-unmasked", "gru-d-rubanova", "rnn-decay-rubanova", "ode-rnn-rubanova"),
        *("rnn-impute", "hippo-lagt", "cf-s-equation-9", "time-lstm-1", "time-lstm-2"),
    }
    not_compared_yet = {
        *("lru", "s5", "linoss", "neural-cde", "slice", "cru", "gru-ode-bayes", "rits", "gruwe"),
        *("linodenet", "t-lstm", "time-lstm"),
    }
    catalog = [name for name, entry in MODELS.items() if hasattr(cells, entry.cell.__name__)]
    catalog += [name for name, info in WHOLE_MODELS.items() if hasattr(models, info.model.__name__)]
    causal = {name for name in catalog if get_model_info(name).is_causal({})}
    assert networks | variants | not_compared_yet == causal
    assert not networks & (variants | not_compared_yet)
