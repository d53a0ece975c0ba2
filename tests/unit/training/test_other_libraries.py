"""Our modules in the loops of others: torch's own idioms, Lightning, Accelerate, skorch."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader

import tauflow
from tauflow import SequenceBatch

B, T, D, N = 16, 6, 2, 6


def labelled():
    """Sequences of 2 to 6 steps, whose class is the sign of their first feature's sum."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, T + 1, (B, 1), generator=generator)
    mask = torch.arange(T) < lengths
    x = torch.randn(B, T, D, generator=generator) * mask.unsqueeze(-1)
    dt = torch.rand(B, T, generator=generator) * mask
    return SequenceBatch(x, (x[..., 0].sum(1) > 0).long(), dt, mask)


class Classifier(nn.Module):
    def __init__(self, hidden_size=N):
        super().__init__()
        torch.manual_seed(0)
        rnn = tauflow.CfC(D, hidden_size, return_sequences=False, backend="reference")
        self.model = tauflow.SequenceModel(rnn, 2)

    def forward(self, x, dt=None, mask=None):
        return self.model(x, dt=dt, mask=mask)[0]


def test_classification_of_packed_sequences():
    data, network = labelled(), Classifier()
    packed = pack_sequence(
        [x[:n] for x, n in zip(data.x, data.lengths, strict=True)], enforce_sorted=False
    )
    gaps = pack_sequence(
        [dt[:n] for dt, n in zip(data.dt, data.lengths, strict=True)], enforce_sorted=False
    )
    torch.testing.assert_close(network(packed, gaps), network(data.x, data.dt, data.mask))
    optimizer, loss = torch.optim.Adam(network.parameters(), 0.02), nn.CrossEntropyLoss()
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        losses.append(loss(network(packed, gaps), data.y))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of theirs
def test_a_lightning_module(tmp_path):
    lightning = pytest.importorskip("lightning")

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = Classifier()

        def training_step(self, batch, _):
            y = self.network(batch.x, batch.dt, batch.mask)
            return nn.functional.cross_entropy(y, batch.y)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 0.02)

    module = Lit()
    before = module.network.model.head.weight.detach().clone()
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, DataLoader(labelled(), batch_size=8, shuffle=True))
    assert trainer.global_step == 4
    assert not torch.equal(module.network.model.head.weight, before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of theirs
def test_an_accelerate_loop():
    accelerate = pytest.importorskip("accelerate")
    accelerator, network = accelerate.Accelerator(cpu=True), Classifier()
    network, optimizer, loader = accelerator.prepare(
        network,
        torch.optim.Adam(network.parameters(), 0.02),
        DataLoader(labelled(), batch_size=8),
    )
    losses = []
    for _ in range(8):
        for batch in loader:
            assert isinstance(batch, SequenceBatch)
            optimizer.zero_grad()
            y = network(batch.x, batch.dt, batch.mask)
            losses.append(nn.functional.cross_entropy(y, batch.y))
            accelerator.backward(losses[-1])
            optimizer.step()
    assert losses[-1] + losses[-2] < losses[0] + losses[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of theirs
def test_a_grid_search_with_skorch_on_unequal_lengths():
    skorch = pytest.importorskip("skorch")
    from sklearn.model_selection import GridSearchCV
    from skorch.helper import SliceDict

    data = labelled()
    X = SliceDict(**{name: getattr(data, name).numpy() for name in ("x", "dt", "mask")})
    net = skorch.NeuralNetClassifier(
        Classifier,
        criterion=nn.CrossEntropyLoss,
        max_epochs=2,
        lr=0.1,
        train_split=None,
        verbose=0,
    )
    search = GridSearchCV(net, {"module__hidden_size": [3, 5]}, cv=2).fit(X, data.y.numpy())
    assert search.best_estimator_.module_.model.rnn.hidden_size in (3, 5)
    assert search.predict(X).shape == (B,)
