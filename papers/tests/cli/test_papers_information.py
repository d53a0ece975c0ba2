import re


def test_a_model_is_described_with_options_and_results(call, tmp_path):
    output = call("info", "ltc", "--results", tmp_path).output
    assert "Hasani et al. 2021" in output
    assert re.search(r"solver +. 'fused'", output)
    assert ":class:" not in output
    assert "``" not in output
    assert re.search(r"ltc-table-3 .*LTC", output)
    assert "not run" in output
    assert re.search(r"solver +. 'exponential'", call("info", "ltc-exp").output)  # the entry's own
    assert "Did you mean 'ltc'" in call("info", "ltcc", code=1).output


def test_info_says_that_there_is_no_folder_of_results(call, tmp_path):
    output = call("info", "ltc", "--results", "elsewhere").output
    assert "Published; no folder elsewhere here" in output
    assert "not run" not in output
