"""The programme to look at: made as people would make one, the same for the same seed."""

import pytest

from evenhand.programme import Programme, demo


def decisions(programme):
    return [
        [(row.arm, row.state, row.action, row.accepted, row.why) for row in programme.plan_of(plan.id).rows]
        for plan in programme.plans()
    ]


@pytest.mark.slow
def test_it_is_the_same_for_the_same_seed(tmp_path):
    with (
        demo.make_demo(tmp_path / "one.db", seed=3, steps=25) as one,
        demo.make_demo(tmp_path / "two.db", seed=3, steps=25) as two,
    ):
        assert decisions(one) == decisions(two)
        assert one.verify().event == two.verify().event


def test_all_of_it_is_there(tmp_path):
    with demo.make_demo(tmp_path / "one.db", seed=3, steps=25) as one:
        assert one.status().step == 25
        assert "hill 17" in {arm.name for arm in one.arms()}
        plan = one.current_plan()
        assert plan is not None
        assert plan.missing > 0
        found = one.audit()
        assert len(found.overrides) > 0
        assert min(found.unknown["late"], found.unknown["corrected"], found.unknown["unseen"]) > 0


@pytest.mark.slow
def test_two_years(tmp_path):
    """The salt at the harbour is found, arms left, and a plan can be computed again."""
    told = []
    demo.make_demo(tmp_path / "lifts.db", progress=lambda what, share: told.append(share)).close()
    with Programme.open(tmp_path / "lifts.db") as programme:
        found = programme.audit()
        assert found.last == 71
        assert [row.name for row in found.groups if row.behind] == ["harbour"]
        assert {row.arm for row in found.arms if row.left is not None} == {"harbour 05", "hill 03"}
        assert told[-1] == 1.0
        programme.recompute(found.last + 1)
