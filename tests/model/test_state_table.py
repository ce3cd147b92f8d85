"""Tables of arms: what is found in them, and every fault with its row."""

import io
import sys

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from evenhand.errors import InvalidInputError, MissingExtraError, TableError
from evenhand.model import Arm, CoupledMDP, as_table, find_arms, in_order, read_table

from ..conftest import mentions

STATES = ["good", "poor"]


def arm(name="", wear=0.2, states=STATES, **labels):
    return Arm(
        [[[1 - wear, wear], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]],
        [[1.0, 0.5], [0.0, 0.5]],
        [[0], [1]],
        name=name,
        states=states,
        actions=["run", "mend"],
        **labels,
    )


def fleet(**more):
    return CoupledMDP([arm("Ford"), arm("Opel", 0.4)], [1], 0.9, [2, 1], **more)


ROWS = [
    {"arm": "b", "type": "Opel", "state": "poor"},
    {"arm": "a", "type": "Ford", "state": "good"},
    {"arm": "c", "type": "Ford", "state": 1},
]


def told(problem, table):
    with pytest.raises(TableError) as caught:
        find_arms(problem, table)
    return str(caught.value)


class TestKindsOfTables:
    @pytest.mark.parametrize(
        "table",
        [
            ROWS,
            {key: [row[key] for row in ROWS] for key in ("arm", "type", "state")},
            pandas.DataFrame(ROWS),
            polars.DataFrame(ROWS, strict=False),
            pyarrow.table({key: [str(row[key]) for row in ROWS] for key in ("state", "arm", "type")}),
        ],
        ids=["rows", "columns", "pandas", "polars", "pyarrow"],
    )
    def test_frames(self, table):
        found = find_arms(fleet(), table)
        assert found.names == ("b", "a", "c")
        assert found.blocks.tolist() == [1, 0, 0]
        assert found.states.tolist() == [1, 0, 1]

    @pytest.mark.parametrize(
        "text",
        [
            "arm,type,state\nb,Opel,poor\na,Ford,good\nc,Ford,1\n",
            "\ufeffState; ARM ;driver;Type\r\npoor;b;x;Opel\r\n\r\ngood;a;;Ford\r\n1;c;y;Ford\r\n",
            "type\tarm\tstate\nOpel\tb\tpoor\nFord\ta\tgood\nFord\tc\tpoor",
            'arm,type,state\n"b","Opel"," poor "\na,Ford,0\nc,Ford,poor\n',
        ],
        ids=["commas", "semicolons", "tabs", "quotes"],
    )
    def test_csv(self, text, tmp_path):
        (tmp_path / "x.csv").write_text(text, encoding="utf-8")
        for table in (read_table(tmp_path / "x.csv"), read_table(io.BytesIO(text.encode()), "csv")):
            found = find_arms(fleet(), table)
            assert (found.names, found.blocks.tolist(), found.states.tolist()) == (
                ("b", "a", "c"),
                [1, 0, 0],
                [1, 0, 1],
            )

    def test_parquet_and_json(self, tmp_path):
        frame = polars.DataFrame(ROWS, strict=False)
        frame.write_parquet(tmp_path / "x.parquet")
        (tmp_path / "x.json").write_text('{"arm": ["b"], "type": ["Opel"], "state": [1]}')
        assert find_arms(fleet(), tmp_path / "x.parquet").states.tolist() == [1, 0, 1]
        assert find_arms(fleet(), str(tmp_path / "x.json")).blocks.tolist() == [1]

    def test_parquet_without_its_package(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "polars", None)
        with pytest.raises(MissingExtraError, check=mentions("extra data", "'polars")):
            read_table(io.BytesIO(b"PAR1"), "parquet")

    @pytest.mark.parametrize(
        ("data", "format", "message"),
        [
            (b"", "csv", "the table is empty"),
            (b",,\n", "csv", "the table is empty"),
            (b"\xef\xbb\xbf", "csv", "the table is empty"),
            (b"  \n", "json", "the table is empty"),
            (b"{", "json", "is not JSON"),
            (b"7", "json", "expected a list of rows"),
            (b"no", "parquet", "is not Parquet"),
            (b"arm,state\nx\xff,1\n", "csv", "line 2: is not UTF-8"),
            (b"arm,type,state\na,Ford\nb,Ford,poor,x\n", "csv", "line 3: has 4 entries where the first line has 3"),
            (b"arm,state,State\na,1,1\n", "csv", "there are several columns state"),
        ],
    )
    def test_not_a_table(self, data, format, message):
        with pytest.raises(TableError) as caught:
            read_table(io.BytesIO(data), format)
        assert message in str(caught.value)

    def test_no_such_file(self, tmp_path):
        with pytest.raises(InvalidInputError, check=mentions("none.csv")):
            read_table(tmp_path / "none.csv")

    def test_something_else(self):
        with pytest.raises(InvalidInputError, check=mentions("states", "int")):
            as_table(7)


class TestFaults:
    def test_all_at_once_with_their_rows(self):
        rows = [
            {"arm": "a", "type": "Frod", "state": "good"},
            {"arm": "b", "type": "Ford", "state": "gone"},
            {"arm": "a", "type": "Ford", "state": "good"},
            {"arm": "", "type": "Ford", "state": ""},
            {"arm": "c", "type": "Ford", "state": "2"},
            {"arm": "d", "type": "", "state": "poor"},
        ]
        with pytest.raises(TableError) as caught:
            find_arms(fleet(), rows)
        places = [fault.place for fault in caught.value.faults]
        assert places == ["row 1", "row 2", "row 3", "row 4", "row 4", "row 5", "row 6"]
        assert 'Did you mean "Ford"?' in caught.value.faults[0].message

    def test_lines_of_a_file(self, tmp_path):
        (tmp_path / "x.csv").write_text('arm,type,state\n\n"two\nlines",Ford,poor\nb,Ford,nowhere\n')
        assert mentions("x.csv", "1 fault", "line 5")(told(fleet(), tmp_path / "x.csv"))

    def test_missing_columns(self):
        message = told(fleet(), {"van": ["a"], "sate": ["poor"]})
        assert mentions("van", "sate")(message)
        assert mentions("van", "sate")(message)
        assert mentions("2 types")(message)

    def test_many_are_cut(self):
        message = told(fleet(), [{"arm": f"a{i}", "type": "x", "state": 0} for i in range(100)])
        assert message.count("\n") == 31
        assert mentions(70)(message)

    def test_none(self):
        assert "there is no arm in it" in told(fleet(), {"arm": [], "type": [], "state": []})


class TestTypes:
    def test_one_type_needs_no_column(self):
        problem = CoupledMDP([arm("Ford")], [1], 0.9, [3])
        assert find_arms(problem, [{"arm": "a", "state": "poor"}]).blocks.tolist() == [0]

    def test_an_arm_may_be_a_block(self):
        problem = CoupledMDP([arm("anna"), arm("ben", 0.4)], [1], 0.9)
        rows = [{"arm": "ben", "state": "poor"}, {"arm": "anna", "state": "good"}]
        assert find_arms(problem, rows).blocks.tolist() == [1, 0]
        assert mentions("cleo", "row 2")(told(problem, [rows[0], {"arm": "cleo", "state": 0}]))

    def test_numbers_and_names_that_are_numbers(self):
        assert find_arms(fleet(), [{"arm": "a", "type": 1, "state": 0}]).blocks.tolist() == [1]
        problem = CoupledMDP([arm("1", states=["1", "0"]), arm("0", 0.4)], [1], 0.9)
        found = find_arms(problem, [{"arm": "a", "type": 1, "state": 0}])
        assert (found.blocks.tolist(), found.states.tolist()) == ([0], [1])

    def test_long_numbers_keep_all_their_digits(self):
        long, tall = 12345678901234567891, 10**400
        found = find_arms(fleet(), [ROWS[0] | {"arm": long}, ROWS[1] | {"arm": long + 1}, ROWS[2] | {"arm": tall}])
        assert found.names == (str(long), str(long + 1), str(tall))

    def test_very_long_digits_are_not_a_number(self):
        endless = "9" * 5000
        assert find_arms(fleet(), [ROWS[0] | {"arm": endless}]).names == (endless,)
        assert fleet().with_initial_states([ROWS[0] | {"arm": endless}]).arm_names == (endless,)
        assert "is not a state" in told(fleet(), [ROWS[0] | {"state": endless}])
        assert "is not in the plan or model" in told(fleet(), [ROWS[0] | {"type": endless}])

    def test_several_types_of_one_name(self):
        problem = CoupledMDP([arm("van"), arm("van", 0.4)], [1], 0.9, groups=["north", "south"])
        assert mentions("number 0", 1)(told(problem, [{"arm": "a", "type": "van", "state": 0}]))
        rows = [{"arm": "a", "type": "van", "state": 0, "group": "south"}]
        assert find_arms(problem, rows).blocks.tolist() == [1]
        assert mentions("van", "west")(told(problem, [rows[0] | {"group": "west"}]))


class TestStates:
    def test_in_order(self):
        found = find_arms(fleet(), np.array([[0, 1, 1]]))
        assert (found.names, found.blocks.tolist(), found.states.tolist()) == (("0", "1", "2"), [0, 0, 1], [0, 1, 1])

    @pytest.mark.parametrize("states", [[0, 1], [0, 0, 2], [0, 0, -1], np.zeros((2, 3), dtype=int)], ids=str)
    def test_that_do_not_fit(self, states):
        with pytest.raises(InvalidInputError, check=mentions("states")):
            find_arms(fleet(), states)


class TestStartingAt:
    def test_groups_arms_by_their_states(self):
        problem = fleet(groups=["x", ""], floors=[0.1, 0.0], resources=["bays"], criterion="finite:5")
        started = problem.with_initial_states([*ROWS, {"arm": "a10", "type": "Ford", "state": "good"}])
        assert started.counts.tolist() == [2, 1, 1]
        assert started.arm_names == ("a", "a10", "c", "b")
        assert [label[0] for label in started.tables.labels] == ["Ford", "Ford", "Opel"]
        assert started.tables.initial.tolist() == [[1, 0], [0, 1], [0, 1]]
        assert (list(started.groups), started.floors.tolist()) == (["x", "x", "Opel"], [0.1, 0.1, 0.0])
        assert (started.criterion.name, started.resources, started.budget.tolist()) == ("finite:5", ("bays",), [1.0])

    def test_groups_stay_what_they_were(self):
        problem = fleet(over="groups")
        assert problem.with_initial_states(ROWS).group_names == problem.group_names == ("Ford", "Opel")

    def test_does_not_depend_on_the_order_of_the_table(self):
        assert fleet().with_initial_states(ROWS) == fleet().with_initial_states(ROWS[::-1])

    def test_known_arms_keep_their_block(self):
        started = fleet().with_initial_states(ROWS)  # blocks: Ford from good, Ford from poor, Opel
        moved = [{"arm": "c", "type": "Ford", "state": "good"}, {"arm": "new", "type": "Ford", "state": "good"}]
        assert find_arms(started, moved).blocks.tolist() == [1, 0]
        assert find_arms(started, [{"arm": "c", "state": "good"}]).blocks.tolist() == [1]
        other = [{"arm": "c", "type": "Opel", "state": "good"}]  # the name went to a van of another make
        assert find_arms(started, other).blocks.tolist() == [2]

    def test_names_are_checked(self):
        for names in (["a"], ["a", "a", "b"], ["a", "", "b"], "abc"):
            with pytest.raises(InvalidInputError, check=mentions("arm_names")):
                fleet(arm_names=names)

    def test_order_of_names(self):
        assert sorted(["van10", "van2", "a", "van1b"], key=in_order) == ["a", "van1b", "van2", "van10"]
