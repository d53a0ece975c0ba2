import pytest
from tiny_experiment import parsed, tiny

from tauflow.data.card import TaskData
from tauflow.errors import (
    ArgumentError,
    DataNotFoundError,
    OptionError,
    SpecificationError,
    UnknownNameError,
)
from tauflow.models.spec import ModelSpec, build_model
from tauflow.runs.job import load_dataset, train_job
from tauflow_papers.experiments import load_experiment
from tauflow_papers.experiments.run.row_jobs import make_job


def test_recipes_are_those_of_the_papers():
    ltc = load_experiment("ltc-table-6").row("ltc")
    assert (ltc.recipe.lr, ltc.recipe.epochs, ltc.recipe.batch_size) == (0.01, 200, 16)
    assert (ltc.model.hidden_size, ltc.model.options["time_scale"]) == (32, 6.0)
    cfc = load_experiment("cfc-table-7").row("cfc")
    assert (cfc.recipe.lr, cfc.recipe.decay, cfc.recipe.clip) == (0.02, 0.95, "per_tensor")
    assert (cfc.model.hidden_size, cfc.model.options["backbone_units"]) == (64, 256)
    mm = load_experiment("cfc-table-7").row("cfc-mmrnn")
    assert (mm.model.options["forget_bias"], mm.model.options["form"]) == (2.1, "input")


def test_shared_tables_and_own_keys_are_merged():
    rows = {row.name: row for row in tiny().rows}
    assert (rows["gru"].recipe.lr, rows["elman"].recipe.lr) == (0.01, 0.02)
    assert rows["elman"].model.hidden_size == 3
    assert rows["future"].status == "not implemented yet"


def test_the_model_fits_the_data():
    data = load_dataset(tiny().rows[0].part)
    model = build_model(ModelSpec("cfc", 4), data.card)
    y, _ = model(data.test.x, dt=data.test.dt)
    assert y.shape == data.test.y.shape
    wired = ModelSpec("ltc", 9, options={"wiring": {"kind": "auto-ncp", "output_size": 2}})
    cell = build_model(wired, data.card).rnn.cell
    assert (cell.wiring.units, cell.output_size) == (9, 2)


@pytest.mark.parametrize(
    ("name", "options", "outputs"),
    [
        ("transformer", {"layers": 1, "heads": 2}, "target_size"),
        ("rnn-vae", {}, "target_size"),
        ("rnn-vae", {"objective": "reconstruction"}, "input_size"),
    ],
)
def test_a_whole_model_fits_the_data_too(name, options, outputs):
    entry = {**parsed()["row"][0], "model": {"cell": name, "hidden_size": 4, **options}}
    (row_of_table,) = tiny(row=[entry]).rows
    data = load_dataset(row_of_table.part)
    model = build_model(row_of_table.model, data.card)
    y, _ = model(data.test.x, dt=data.test.dt)
    assert y.shape == (*data.test.y.shape[:2], getattr(data.card, outputs))


@pytest.mark.parametrize(
    "model",
    [
        {"cell": "rnn-vae", "encoder_size": 4, "units": 4},
        {"cell": "seft", "latent_size": 4},
        {"cell": "ip-net", "reference_points": 4, "horizon": 1.0},
    ],
    ids=lambda model: model["cell"],
)
def test_a_whole_model_of_a_table_trains(model):
    row = {**parsed()["row"][0], "model": {"hidden_size": 3, **model}}
    part = [{"name": "", "dataset": "xor-event"}]
    recipe = {"epochs": 2, "batch_size": 6, "select": "last"}
    table = tiny(row=[row], part=part, recipe=recipe, loss="bce", metric="binary_accuracy")
    full = load_dataset(table.rows[0].part)
    data = TaskData(full.card, full.train[:12], None, full.test[:6])
    record, trained = train_job(make_job(table, table.rows[0], 0), data)
    assert 0 <= record.test <= 1
    assert record.parameters == sum(p.numel() for p in trained.parameters())
    y, _ = trained(data.test.x, dt=data.test.dt, mask=data.test.mask)
    assert y.shape == data.test.y.shape


WRONG_WHOLE = [
    (
        {"cell": "seft"},
        ArgumentError,
        "'seft' answers once per sequence, but pendulum has a target",
    ),
    ({"cell": "convolutional"}, ArgumentError, "'convolutional' takes images, but pendulum has"),
    ({"cell": "rnn-vae", "head_init": "keras"}, OptionError, "its own readout; leave head_init"),
    ({"cell": "transformer", "wiring": {"kind": "full"}}, OptionError, "has no option 'wiring'"),
    ({"cell": "rnn-vae", "classes": 2}, OptionError, "'classes' follows from the data set"),
    ({"cell": "rnn-vea"}, UnknownNameError, "Did you mean 'rnn-vae'"),
]


@pytest.mark.parametrize(("model", "error", "message"), WRONG_WHOLE)
def test_what_does_not_fit_a_whole_model_is_said(model, error, message):
    data = load_dataset(tiny().rows[0].part)

    def build():
        table = tiny(row=[{**parsed()["row"][0], "model": {"hidden_size": 4, **model}}])
        return build_model(table.rows[0].model, data.card)

    with pytest.raises(error, match=message):
        build()


def spoilt(**changes):
    return lambda: tiny(**changes)


def row(**changes):
    return spoilt(row=[{**parsed()["row"][0], **changes}])


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (spoilt(recpie={}), SpecificationError, "unknown key 'recpie'. Did you mean 'recipe'"),
        (spoilt(seeds="five"), SpecificationError, "seeds must be a int, got 'five'"),
        (row(modle={}), SpecificationError, "row 'gru': unknown key 'modle'. Did you mean 'model'"),
        (row(recipe={"optim": "adam"}), SpecificationError, "'optim'.*Did you mean 'optimizer'"),
        (row(recipe={"lr": -1.0}), SpecificationError, "lr"),
        (row(published={"std": 1.0}), SpecificationError, "'mean' is missing"),
        (row(planned="x"), SpecificationError, "only one of 'planned', 'untrained' and 'model'"),
        (spoilt(row=[parsed()["row"][0]] * 2), SpecificationError, "two rows are named 'gru'"),
        (spoilt(headlines=["gru", "gru"]), SpecificationError, "headlines names 'gru' 2 times"),
        (spoilt(headlines=["gr"]), SpecificationError, "'gr', which is not.*Did you mean 'gru'"),
        (
            row(model={"cell": "gru", "return_sequences": True}),
            OptionError,
            "follows from the data set",
        ),
        (lambda: load_experiment("ltc-tabel-6"), UnknownNameError, "Did you mean 'ltc-table-6'"),
        (lambda: load_experiment("nowhere.toml"), DataNotFoundError, "nowhere.toml"),
        (lambda: tiny().select(["grru"]), UnknownNameError, "Did you mean 'gru'"),
        (
            lambda: tiny().select(["future"]),
            UnknownNameError,
            "'not-yet' of row 'future' is not implemented yet. Rows that run: elman, gru",
        ),
    ],
)
def test_what_is_wrong_is_said(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / "own.toml").write_text("name = [")
    with pytest.raises(SpecificationError, match=r"own.toml"):
        load_experiment(str(tmp_path / "own.toml"))
