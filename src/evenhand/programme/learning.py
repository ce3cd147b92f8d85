"""Learning from a programme's own records."""

from evenhand.programme.running import Running


class Learning(Running):
    """Refitting the model."""
