from dataclasses import replace

import torch

from tauflow.data.registry import load_task
from tauflow.models.spec import ModelSpec, build_model
from tauflow.runs.report.page import write_run_report
from tauflow.runs.run import DEFAULT_RECIPE, Run
from tauflow.runs.task import run_task
from tauflow_papers.theory.driving import DRIVING_WIRING, driving_model

LAYERS = ((4, 5, 2), (6, 3, 2))


def test_the_published_network_is_a_choice_of_options():
    """But for a last layer of one weight; the head has the parameters of Table 3."""
    options = {"wiring": DRIVING_WIRING.to_dict()}
    data = load_task("lane-keeping", sizes=(1, 0, 1), steps=2)
    model = build_model(ModelSpec("wired-cfc", 19, options=options), data.card)
    assert sum(p.numel() for p in model.head.parameters()) == 226_644
    published, batch = driving_model("cfc"), data.test
    shared = {k: v for k, v in model.state_dict().items() if not k.startswith("readout")}
    published.load_state_dict(shared)
    with torch.no_grad():
        expected = model.readout(published(batch.x, dt=batch.dt)[0])
        torch.testing.assert_close(model(batch.x, dt=batch.dt)[0], expected)


def test_a_run_on_images_ends_with_a_report(tmp_path):
    run = run_task(
        Run(
            "lane-keeping",
            "gru",
            hidden_size=3,
            options={"layers": LAYERS, "features": 5},
            recipe=replace(DEFAULT_RECIPE, epochs=2, batch_size=3),
            dataset_options={"sizes": (6, 2, 4), "steps": 3, "image_size": (24, 40)},
            runs_dir=tmp_path,
            progress=False,
        )
    )
    assert run.record.status == "done"
    assert [name for name, _ in run.baselines] == ["training mean"]
    page = write_run_report(run).read_text(encoding="utf-8")
    assert "GRU on Lane keeping" in page
    assert page.count("data:image/svg+xml;base64,") == 2
