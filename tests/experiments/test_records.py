"""Records: ids that follow what a result depends on, files that are whole."""

import json

import pytest

from evenhand.errors import InvalidInput
from evenhand.experiments.records import Store, digest_of, identify, read_run
from evenhand.experiments.spec import Cell

CELL = Cell("optimum", {"problem": "machine-replacement", "parameters": {"num_arms": 2}, "welfare": "gini:2"})
WHOLE = {"welfare": 1.5, "upper_bound": 2.5, "states": 6, "method": "counts"}


def test_the_id_follows_kind_settings_and_code():
    other = [
        (Cell("fluid", CELL.settings), "a"),
        (Cell("optimum", {**CELL.settings, "welfare": "maximin"}), "a"),
        (Cell("optimum", {**CELL.settings, "parameters": {"num_arms": 3}}), "a"),
        (CELL, "b"),
    ]
    ids = {identify(cell, code) for cell, code in [(CELL, "a"), *other]}
    assert len(ids) == 5
    assert all(len(identity) == 16 and int(identity, 16) >= 0 for identity in ids)


def test_the_id_does_not_follow_the_order_of_settings():
    turned = Cell("optimum", dict(reversed(CELL.settings.items())))
    assert identify(turned, "a") == identify(CELL, "a")


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    for name in (
        "a.py",
        "inner/b.py",
        "cli/c.py",
        "report/d.py",
        "service/s.py",
        "programme/migrations/p.py",
        "__pycache__/e.pyc",
        "inner/__pycache__/f.nbi",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        ("a.py", True), ("inner/b.py", True), ("inner/weights.zip", True),
        ("service/s.py", False), ("programme/migrations/p.py", False),
        ("cli/c.py", False), ("report/d.py", False), ("__pycache__/e.pyc", False), ("inner/__pycache__/f.nbi", False),
    ],
)  # fmt: skip
def test_the_code_digest_follows_what_results_depend_on(name, matters, package):
    before = digest_of(package)
    (package / name).write_text("changed")
    assert (digest_of(package) != before) is matters


def test_a_renamed_file_changes_the_digest(package):
    before = digest_of(package)
    (package / "a.py").rename(package / "z.py")
    assert digest_of(package) != before


def test_a_record_comes_back_and_only_a_done_one_is_done(tmp_path):
    store = Store(tmp_path, "code")
    assert store.read(CELL) is None
    store.write(CELL, {}, {}, 1.0, "it broke")
    assert store.read(CELL)["error"] == "it broke"
    assert not store.is_done(CELL)
    store.write(CELL, WHOLE | {"upper_bound": float("inf")}, {"total": 0.5}, 2.0)
    record = store.read(CELL)
    assert record["values"] == WHOLE | {"upper_bound": None}
    assert (record["status"], record["seconds"], record["schema"]) == ("done", 2.0, 1)
    assert store.is_done(CELL)
    assert not Store(tmp_path, "other code").is_done(CELL)


@pytest.mark.parametrize("content", ["", '{"schema": 1', "[]", '{"schema": 9, "kind": "optimum", "status": "done"}'])
def test_a_file_that_is_no_record_is_not_done(content, tmp_path):
    store = Store(tmp_path, "code")
    store.path(CELL).parent.mkdir()
    store.path(CELL).write_text(content)
    assert not store.is_done(CELL)


@pytest.mark.parametrize(
    ("values", "timings"),
    [({}, {"total": 1.0}), (WHOLE, {}), (WHOLE | {"states": "six"}, {"total": 1.0}), (WHOLE, {"total": None})],
)
def test_a_record_that_is_not_whole_is_not_done(values, timings, tmp_path):
    store = Store(tmp_path, "code")
    store.write(CELL, WHOLE, {"total": 1.0}, 2.0)
    assert store.is_done(CELL)
    store.write(CELL, values, timings, 2.0)
    assert not store.is_done(CELL)


def test_records_are_gathered_sorted_and_once(tmp_path):
    store = Store(tmp_path, "code")
    cells = [Cell(kind, {"n": n}) for kind, n in (("train", 1), ("optimum", 2), ("optimum", 1))]
    learnt = {"score": 1.0, "exact": True, "curve": [], "steps": 9, "evaluations": []}
    for cell, values in zip(cells, (learnt, WHOLE, WHOLE), strict=True):
        store.write(cell, values, dict.fromkeys(("train", "evaluate", "total"), 1.0), 0.0)
    store.write_records([*cells, cells[0], Cell("lp", {"n": 7})])
    store.write_manifest({"quick": True})
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["settings"]["n"]) for line in lines] == [("optimum", 1), ("optimum", 2), ("train", 1)]
    run = read_run(tmp_path)
    assert run.manifest["quick"] is True
    assert run.manifest["machine"]["cores"] >= 1
    assert run.manifest["versions"]["numpy"]
    assert run.records[identify(cells[0], "code")]["kind"] == "train"


def test_a_folder_without_a_run_is_told(tmp_path):
    with pytest.raises(InvalidInput, match="holds no finished run"):
        read_run(tmp_path)
