"""`evenhand fairness`: the tables, the JSON of the contract, the page, and the plans as files."""

import pytest

QUICK = ["--welfare", "maximin", "--welfare", "gini:2"]


def test_json_is_the_contract(small, evenhand):
    found = evenhand("fairness", small, "--json").json
    assert [row["welfare"] for row in found["rows"]][:2] == ["utilitarian", "gini:half=0.75"]
    assert (found["who"], found["counts"], found["left_out"]) == ("type", {"machine": 2, "pump": 1}, {})
    names = {row["welfare"] for row in found["rows"]}
    for row in found["rows"]:
        assert {"welfare", "mean", "worst", "gini_coefficient", "by", "values"} <= set(row)
        assert set(row["by"]) == names
        assert set(row["values"]) == set(row["gains"]) == {"machine", "pump"}
        alone = evenhand("solve", small, "--welfare", row["welfare"], "--json").json
        assert row["by"][row["welfare"]] == pytest.approx(alone["welfare"]["value"], rel=1e-6)
        assert row["policy"] is None


def test_text_shows_prices_and_who_gains(small, evenhand):
    found = evenhand("fairness", small, *QUICK, "--json").json["rows"]
    shown = evenhand("fairness", small, *QUICK).out
    for row in found:
        assert f"{row['mean']:.4f}" in shown and f"{100 * row['price']:.1f} %" in shown
        for name in ("machine", "pump"):
            assert f"{row['values'][name]:.4f}" in shown
    assert f"({found[1]['gains']['pump']:+.4f})" in shown
    assert "by gini:2" in shown and "by maximin" not in shown


def test_options_of_solve_go_on(small, evenhand):
    options = ["--criterion", "finite:5", "--over", "groups", "--budget", "2", *QUICK]
    found = evenhand("fairness", small, *options, "--json").json
    assert (found["criterion"], found["over"], found["budget"]) == ("finite:5", "groups", {"resource 0": 2})
    assert found["who"] == "group"


def test_plans_are_saved_and_play(small, folder, evenhand, files):
    found = evenhand("fairness", small, *QUICK, "--out", "plans", "--json").json
    assert files() == ["plans", "small.toml"]
    assert sorted(path.name for path in (folder / "plans").iterdir()) == [
        "gini-2.zip",
        "maximin.zip",
        "utilitarian.zip",
    ]
    for row in found["rows"]:
        played = evenhand("evaluate", small, row["policy"], "--welfare", row["welfare"], "--json").json
        assert played["welfare"] == pytest.approx(row["by"][row["welfare"]], rel=1e-6)


def test_the_page_is_whole_and_escapes(small, folder, evenhand):
    small.write_text(small.read_text().replace('"pump"', "\"<b>pump</b> & 'co'\""))
    told = evenhand("fairness", small, *QUICK, "--report", "page.html")
    assert "report: page.html" in told.out
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert "<script" not in page and "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    assert "<b>pump</b>" not in page and "&lt;b&gt;pump&lt;/b&gt;" in page
    assert page.count("<svg") == 2
    found = evenhand("fairness", small, *QUICK, "--json").json["rows"]
    assert "gini:2" in page and f"{found[1]['worst']:.3f}" in page


def test_where_fairness_costs_nothing_the_page_says_so(folder, evenhand):
    evenhand("fairness", "machine-replacement", "-p", "num_arms=2", *QUICK, "--report", "page.html")
    assert "fairness costs nothing" in (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--welfare", "gnii:2"], "Did you mean 'gini'?"),
        (["--out", "small.toml"], "--out: expected the name of a folder"),
        (["--out", "no/plans"], "--out: the folder of no/plans does not exist"),
        (["--report", "no/page.html"], "--report"),
        (["--budget", "1", "--budget", "2"], "--budget: "),
        (["--seconds", "0"], "seconds: expected a positive number"),
    ],
    ids=str,
)
def test_bad_input(options, told, small, evenhand, files):
    assert told in evenhand("fairness", small, *options).refusal
    assert files() == ["small.toml"]
