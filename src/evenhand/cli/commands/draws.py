"""Posterior of a fitted model, for --draws."""

from evenhand.cli.refusals import OptionError
from evenhand.cli.standard_input import DASH
from evenhand.fitting.posterior_files import HOW_TO_FIT, posterior_path
from evenhand.problems import catalog


def posterior_of(model: str, asked: bool) -> str | None:
    """Return the model file that has a posterior beside it; None if no draws are requested.

    Args:
        model: MODEL as it was typed.
        asked: whether draws are requested.
    """
    if not asked:
        return None
    if model in catalog.names():
        raise OptionError("--draws", f"{model} is a built-in problem, and known for sure; draws are of a fitted model")
    if model == DASH:
        raise OptionError("--draws", "what is known of a model stands in a file beside it, and this is standard input")
    if not (beside := posterior_path(model)).exists():
        raise OptionError("--draws", f"there is no {beside}, which says how sure the transitions are. {HOW_TO_FIT}")
    return model
