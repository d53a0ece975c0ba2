import hashlib
import json
import resource
import struct
import warnings

import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import tauflow
from tauflow._internal.tensor_file import encode_tensor_file, hash_tensors, write_tensor_file
from tauflow.cells import CfCCell
from tauflow.errors import ArgumentError, DataNotFoundError, ExportError, ModelFileError
from tauflow.export import get_config, load, program_step, save
from tauflow.export.files import collect_tensors

TINY = tauflow.Elman(1, 1)


def model(name="ltc", dtype=torch.float32):
    torch.manual_seed(3)
    wired = name in ("ltc", "wired-cfc")
    rnn = tauflow.build(name, 3, tauflow.AutoNCP(7, 2) if wired else 5)
    return tauflow.SequenceModel(rnn, 2).to(dtype)


@pytest.fixture(scope="module")
def tiny_bytes(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.safetensors"
    save(TINY, path)
    return path.read_bytes()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", list(tauflow.cells.MODELS))
def test_round_trip_is_exact(name, dtype, tmp_path):
    original = model(name, dtype).eval()
    save(original, tmp_path / "model.safetensors")
    loaded = load(str(tmp_path / "model.safetensors")).eval()
    assert type(loaded) is type(original)
    before, after = original.state_dict(), loaded.state_dict()
    assert list(before) == list(after)
    for key, value in before.items():
        assert value.dtype == after[key].dtype
        assert torch.equal(value, after[key])
    x = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    for ours, theirs in zip(loaded(x, dt=0.3), original(x, dt=0.3), strict=True):
        assert not ours.isnan().any()
        assert torch.equal(ours, theirs)


def test_constants_keep_the_digits_they_were_made_with(tmp_path):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        original = tauflow.LMU(3, 5)
    finally:
        torch.set_default_dtype(before)
    save(original, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert loaded.cell.A.dtype is torch.float64
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    assert torch.equal(loaded(x)[0], original(x)[0])
    assert "A" not in loaded.cell.state_dict()


def test_a_file_without_constants_is_read_too(tmp_path):
    rnn = tauflow.LMU(3, 5)
    write_tensor_file(tmp_path / "old.safetensors", "model", rnn.state_dict(), get_config(rnn))
    x = torch.randn(2, 4, 3)
    assert torch.equal(load(tmp_path / "old.safetensors")(x)[0], rnn(x)[0])


@pytest.mark.parametrize("layers", [{}, {"backbone_layers": 1}])
def test_a_dropout_that_spares_the_only_layer_is_left_out(layers, tmp_path):
    rnn = tauflow.CfC(3, 5, dropout_first=False)
    description = get_config(rnn)
    description["options"] |= {"backbone_dropout": 0.5, **layers}
    write_tensor_file(tmp_path / "old.safetensors", "model", rnn.state_dict(), description)
    x = torch.randn(2, 4, 3)
    assert torch.equal(load(tmp_path / "old.safetensors")(x)[0], rnn(x)[0])


def test_a_loaded_model_can_be_trained(tmp_path):
    save(model(), tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert loaded.training
    loaded(torch.ones(1, 2, 3))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in loaded.parameters())


def test_other_readers_of_safetensors_see_weights_and_description(tmp_path):
    original = model("cfc")
    save(original, tmp_path / "model.safetensors")
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        metadata = json.loads(file.metadata()["tauflow"])
        assert torch.equal(file.get_tensor("head.weight"), original.head.weight)
    assert metadata == {
        "kind": "model",
        "format_version": 1,
        "tauflow_version": tauflow.__version__,
        "facts": get_config(original),
    }


def test_shared_and_non_contiguous_tensors(tmp_path):
    rnn = tauflow.LSTM(4, 4, num_layers=2)
    rnn.cells[1].W_x = rnn.cells[0].W_h
    rnn.cells[0].W_x = nn.Parameter(torch.randn(4, 16).T)
    save(rnn, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    for key, value in rnn.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value)


def test_saving_replaces_a_file_whole_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    save(TINY, path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    assert isinstance(load(path), tauflow.Elman)


def test_a_model_that_cannot_be_saved_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(ArgumentError, match="activation"):
        save(CfCCell(1, 1, activation=torch.tanh), path)
    assert path.read_bytes() == b"old"


def test_neither_saving_nor_loading_moves_the_random_generator(tmp_path):
    before = torch.get_rng_state()
    save(TINY, tmp_path / "model.safetensors")
    load(tmp_path / "model.safetensors")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_part_replaced_after_building_is_refused(tmp_path):
    changed = model()
    changed.head = nn.Linear(2, 3)
    with pytest.raises(
        ArgumentError, match=r"not as it was built: head.weight is of shape \(3, 2\)"
    ):
        save(changed, tmp_path / "model.safetensors")


class WithNotes(nn.Linear):
    """A layer whose state dict holds a dictionary."""

    def get_extra_state(self):
        return {"notes": "mine"}


def quantised():
    quantization = pytest.importorskip("torch.ao.quantization")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that all of it will leave torch some day
        return quantization.quantize_dynamic(model("cfc").eval(), {nn.Linear})


def test_what_is_no_tensor_is_refused_by_name(tmp_path):
    noted = model("cfc")
    noted.head = WithNotes(5, 2)
    for each, words in (
        (quantised(), r"_packed_params\.dtype of its state_dict is a dtype and no tensor"),
        (noted, r"head\._extra_state of its state_dict is a dict and no tensor"),
    ):
        with pytest.raises(ArgumentError, match=f"^SequenceModel: .*{words}"):
            save(each, tmp_path / "m")
        with pytest.raises(ExportError, match=f"^SequenceModel: .*{words}.*export the model befo"):
            program_step(each)
    assert list(tmp_path.iterdir()) == []


def test_a_part_changed_after_building_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    changed = model()
    changed.rnn.return_sequences = False
    with pytest.raises(ArgumentError, match=r"rnn.return_sequences is False, was True"):
        save(changed, path)
    changed = model()
    changed.rnn = tauflow.LTC(3, tauflow.AutoNCP(7, 2), solver="rk4")
    with pytest.raises(ArgumentError, match=r"solver is 'rk4', was 'fused'"):
        save(changed, path)
    assert not path.exists()


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(DataNotFoundError, match="is a folder"):
        save(TINY, tmp_path)
    with pytest.raises(DataNotFoundError, match="is a folder, expected a model file"):
        load(tmp_path)


def test_missing_places(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"no folder .*nowhere. Create it first"):
        save(TINY, tmp_path / "nowhere" / "model.safetensors")
    with pytest.raises(DataNotFoundError, match=r"model.safetensors does not exist. Check"):
        load(tmp_path / "model.safetensors")


def refused(data, tmp_path_factory, message):
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_truncation_at_any_byte_is_refused(tiny_bytes, tmp_path_factory):
    for length in range(len(tiny_bytes)):
        refused(tiny_bytes[:length], tmp_path_factory, "is truncated, damaged or not")


def test_any_damaged_byte_of_the_tensors_is_refused(tiny_bytes, tmp_path_factory):
    (header,) = struct.unpack("<Q", tiny_bytes[:8])
    payload = range(8 + header, len(tiny_bytes))
    assert len(payload) == 4 * sum(p.numel() for p in TINY.parameters())
    for place in payload:
        damaged = bytearray(tiny_bytes)
        damaged[place] ^= 1
        refused(bytes(damaged), tmp_path_factory, "checksum does not match")


@given(data=st.data())
def test_a_flipped_bit_anywhere_is_refused_or_harmless(tiny_bytes, tmp_path_factory, data):
    place = data.draw(st.integers(0, len(tiny_bytes) - 1))
    damaged = bytearray(tiny_bytes)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "flipped.safetensors"
    path.write_bytes(bytes(damaged))
    try:
        loaded = load(path)
    except ModelFileError:
        return
    # White space of the header may change; nothing that it says may.
    assert get_config(loaded) == get_config(TINY)
    for key, value in TINY.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value)


def test_a_changed_description_is_refused(tiny_bytes, tmp_path_factory):
    changed = tiny_bytes.replace(rb"\"backend\": \"auto\"", rb"\"backend\": \"atuo\"")
    assert changed != tiny_bytes
    refused(changed, tmp_path_factory, "checksum does not match")


def test_other_files_are_refused(tmp_path, tmp_path_factory):
    refused(b"", tmp_path_factory, "not a safetensors file")
    refused(b"PK\x03\x04 a pickle of torch.save", tmp_path_factory, "not a safetensors file")
    bare = safetensors.torch.save(dict(TINY.state_dict()))
    refused(bare, tmp_path_factory, "not one of tauflow")
    write_tensor_file(tmp_path / "c", "checkpoint", TINY.state_dict(), {})
    refused((tmp_path / "c").read_bytes(), tmp_path_factory, "is a checkpoint, expected a model")
    write_tensor_file(tmp_path / "e", "estimator", TINY.state_dict(), {})
    refused((tmp_path / "e").read_bytes(), tmp_path_factory, "is an estimator, expected a model")


def crafted(tensors=None, version=1, **changes):
    """Return a file with a true checksum but another content."""
    tensors = dict(TINY.state_dict()) if tensors is None else tensors
    return encode_tensor_file(
        "model", tensors, {**get_config(TINY), **changes}, format_version=version
    )


def test_a_newer_format_asks_for_an_upgrade(tmp_path_factory):
    refused(crafted(version=2), tmp_path_factory, "format version 2.* up to 1. Upgrade tauflow")


def test_tensors_that_do_not_fit_are_refused(tmp_path_factory):
    state = dict(TINY.state_dict())
    without = {name: value for name, value in state.items() if name != "cells.0.b"}
    refused(crafted(without), tmp_path_factory, r"Missing key\(s\) in state_dict: \"cells.0.b\"")
    refused(
        crafted(state | {"more": torch.ones(1)}),
        tmp_path_factory,
        r"Unexpected key\(s\) in state_dict: \"more\"",
    )
    wider = state | {"cells.0.b": torch.ones(2)}
    refused(crafted(wider), tmp_path_factory, "size mismatch for cells.0.b")


def test_descriptions_that_cannot_be_built_are_refused(tmp_path_factory):
    refused(crafted(**{"class": "Elmann"}), tmp_path_factory, "cannot be built: unknown class")
    refused(crafted(options={"size": 1}), tmp_path_factory, "cannot be built: Elman cannot be")
    refused(crafted(options=None), tmp_path_factory, "cannot be built: a description has")
    refused(crafted(**{"class": ["LTC"]}), tmp_path_factory, "cannot be built: a description has")
    # A description that names code outside tauflow is a name like any other: nothing is imported.
    message = (
        r"'os\.system' is a class of another package than tauflow, and none by that name is reg"
    )
    refused(crafted(**{"class": "os.system"}), tmp_path_factory, message)


ABSURD = {
    "a huge cell": ("lstm", {"hidden_size": 10**9}),
    "a size that no tensor has": ("lstm", {"hidden_size": 10**30}),
    "very many layers": ("elman", {"num_layers": 10**7}),
    "a long backbone": ("cfc", {"backbone_layers": 10**8}),
    "a huge input": ("gru-d", {"input_size": 10**9}),
    "a memory of high order": ("lmu", {"order": 6000}),
    "a gate memory of high order": ("hippo-lagt", {"order": 6000}),
    "a full wiring": (
        "ltc",
        {"hidden_size": {"wiring": {"kind": "fully-connected", "units": 20_000}}},
    ),
    "a drawn wiring": (
        "wired-cfc",
        {"hidden_size": {"wiring": {"kind": "auto-ncp", "units": 10**9, "output_size": 1}}},
    ),
}


@pytest.mark.parametrize("case", ABSURD)
def test_a_description_larger_than_the_tensors_is_refused_before_it_is_built(case, tmp_path):
    name, changes = ABSURD[case]
    rnn = tauflow.build(name, 2, 3)
    description = get_config(rnn)
    description["options"] |= changes
    write_tensor_file(tmp_path / "model.safetensors", "model", collect_tensors(rnn), description)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelFileError, match=r"^model.safetensors: .*larger module than the tens"):
        load(tmp_path / "model.safetensors")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


@pytest.mark.parametrize("option", [{"num_layers": [1]}, {"dropout": "x"}, {"hidden_size": True}])
def test_options_of_the_wrong_type_are_refused(option, tmp_path):
    description = get_config(TINY)
    description["options"] |= option
    write_tensor_file(tmp_path / "model.safetensors", "model", collect_tensors(TINY), description)
    with pytest.raises(ModelFileError, match=f"{next(iter(option))} must be"):
        load(tmp_path / "model.safetensors")


def test_weights_of_another_kind_of_numbers_are_refused(tmp_path_factory):
    integers = {name: value.int() for name, value in TINY.state_dict().items()}
    refused(crafted(integers), tmp_path_factory, r"cells.0.W_x is of torch.int32, expected numbers")


def test_the_checksum_is_over_names_types_shapes_and_bytes():
    tensor = torch.tensor([1.0, 2.0])
    expected = hashlib.sha256(b"\na:torch.float32:(2,);" + struct.pack("<2f", 1, 2))
    assert hash_tensors({"a": tensor}) == expected.hexdigest()
