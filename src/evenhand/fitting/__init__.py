"""From records to a model: who was in which condition, what was done, what came.

A table of records is read into a `Log` (sorted, coded, every fault told with its row), counted into `Moves`, and
estimated into a `Posterior`: transition rows with what is known of them. What cannot be known is said, never made up.
"""
