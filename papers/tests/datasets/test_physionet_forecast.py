import io
import tarfile

import numpy as np
import pytest
import torch

from tauflow.errors import UnknownNameError
from tauflow.runs.baselines import score_baselines
from tauflow.training import METRICS
from tauflow_papers.datasets.real import physionet_forecast
from tauflow_papers.datasets.real.physionet_forecast import load_physionet_forecast
from tauflow_papers.datasets.real.physionet_records import VARIABLES
from tauflow_papers.experiments.report.query_baselines import score_boosting

HR, TEMP = VARIABLES.index("HR"), VARIABLES.index("Temp")


def write_archive(path, numbers, late=0.0):
    """Write records of a heart rate and, at other times, a temperature; raise what is late."""
    with tarfile.open(path, "w:gz") as archive:
        for number in numbers:
            rng = np.random.default_rng(number)
            lines = ["Time,Parameter,Value", f"00:00,RecordID,{number}", "00:00,Age,50"]
            for minute in np.sort(rng.choice(48 * 60, 40, replace=False)):
                name = "HR" if rng.random() < 0.7 else "Temp"
                value = round({"HR": 80, "Temp": 37}[name] + rng.normal(), 2)
                value += late if minute >= 24 * 60 else 0.0
                lines.append(f"{minute // 60:02}:{minute % 60:02},{name},{value}")
            content = "\n".join(lines).encode()
            member = tarfile.TarInfo(f"set/{number}.txt")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a loader of small archives, whose late values may be raised."""
    monkeypatch.setenv("TAUFLOW_CACHE", str(tmp_path / "cache"))

    def loader(late=0.0, **options):
        paths = [tmp_path / f"set-{name}-{late}.tar.gz" for name in "ab"]
        for path, numbers in zip(paths, (range(100, 130), range(200, 220)), strict=True):
            write_archive(path, numbers, late)
        monkeypatch.setattr(physionet_forecast, "fetch_files", lambda *_, **__: paths)
        return load_physionet_forecast(tmp_path, **options)

    return loader


def test_a_day_is_given_and_the_next_one_asked_for(load):
    data = load()
    assert data.sizes == (30, 10, 10)
    part = data.train
    is_query = part.x[..., -1] > 0
    hours = part.dt.cumsum(1)
    assert (hours[is_query] >= 24).all()
    assert (hours[part.mask & ~is_query] < 24).all()
    assert (part.y_mask.any(-1) == is_query).all()
    assert not part.x[..., :-1][is_query].any()
    assert not part.observed[..., :-1][is_query].any()
    seen = part.observed[..., :-1]
    assert set(seen.flatten(0, 1).any(0).nonzero().flatten().tolist()) == {0, HR, TEMP}
    # Scaled by the range of training and validation, minus the mean of the training part.
    known = torch.cat([part.x[..., HR][seen[..., HR]], part.y[..., HR][part.y_mask[..., HR]]])
    assert known.mean().abs() < 1e-6
    valid = data.valid
    more = [valid.x[..., HR][valid.observed[..., HR]], valid.y[..., HR][valid.y_mask[..., HR]]]
    both = torch.cat([known, *more])
    assert (both.max() - both.min()).item() == pytest.approx(1, abs=1e-5)


def test_what_is_given_says_nothing_of_the_second_day(load):
    first, second = load(), load(late=5.0)
    for name in ("train", "test"):
        part, other = getattr(first, name), getattr(second, name)
        for field in ("mask", "dt", "observed"):
            assert torch.equal(getattr(part, field), getattr(other, field))
        seen = part.observed[..., HR]
        x, z = part.x[..., HR][seen], other.x[..., HR][seen]
        # But for the scale, which is learned of both days.
        assert np.corrcoef(x, z)[0, 1] == pytest.approx(1, abs=1e-6)


def test_three_hours_are_asked_for_after_a_day_and_a_half(load):
    data = load(protocol="pyomnits")
    assert data.sizes == (40, 5, 5)
    assert data.card.target_size == 36
    part = data.train
    is_query, hours = part.x[..., -1] > 0, part.dt.cumsum(1)
    assert is_query.sum(1).max() == 3
    assert (hours[is_query] - hours[:, :1].expand_as(hours)[is_query] > 0).all()
    assert torch.equal(part.dt, part.dt.round())
    everything = torch.cat([getattr(data, name).x[..., :-1] for name in ("train", "valid", "test")])
    assert everything.abs().max() < 5
    with pytest.raises(UnknownNameError, match="protocol"):
        load(protocol="grafiti")


def test_the_score_counts_variables_alike(load):
    data = load()
    test = data.test
    prediction = torch.zeros_like(test.y)
    errors = [
        test.y[..., k][test.y_mask[..., k]].square().mean()
        for k in range(41)
        if test.y_mask[..., k].any()
    ]
    score = METRICS[physionet_forecast.MSE_BY_VARIABLE](prediction, test)
    torch.testing.assert_close(score, torch.stack(errors).mean())


def test_boosting_learns_what_persistence_cannot(load):
    data = load(late=5.0)
    scores = dict(score_baselines(data, data.card.metric))
    assert score_boosting(data, data.card.metric) < 0.5 * scores["persistence"]
