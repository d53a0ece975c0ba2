"""Lists of what there is: models, data sets, tables."""

from tauflow.cells.catalog import MODELS
from tauflow.data import catalog
from tauflow.experiments import list_experiments, load_experiment
from tauflow.experiments.spec import READY

from .output import print_table, say


def print_models(*, markdown: bool = False) -> None:
    """Print the catalog of models, in Markdown if asked."""
    headers = ("name", "model", "published in")
    rows = [(entry.name, entry.title, entry.paper) for entry in MODELS.values()]
    if not markdown:
        print_table(headers, rows)
        return
    say("| " + " | ".join(headers) + " |")
    say("| --- | --- | --- |")
    for name, title, paper in rows:
        say(f"| `{name}` | {title} | {paper} |")


def print_data() -> None:
    """Print the catalog of data sets, and which can be loaded without the network."""
    rows = []
    for name, card in catalog.DATASETS.items():
        here = "here" if catalog.available(name) else f"tauflow data get {name}"
        rows.append((name, card.title, " / ".join(map(str, card.sizes)), card.licence, here))
    print_table(("name", "data set", "train / valid / test", "licence", "on this machine"), rows)


def get(name: str) -> None:
    """Fetch a data set."""
    place = catalog.get(name)
    say(f"{name} is here: {place}" if place is not None else f"{name} is generated, not fetched.")


def print_experiments() -> None:
    """Print the published tables that can be measured again."""
    rows = []
    for name in list_experiments():
        experiment = load_experiment(name)
        ready = [row.name for row in experiment.rows if row.status == READY]
        rows.append((name, experiment.source, f"{len(ready)} of {len(experiment.rows)} rows"))
    print_table(("name", "published in", "can be run"), rows)
