"""Cleaning of records by rules: from files as they come to a log that `fit` reads.

`clean_records` (in `clean`) reads tables (`raw_table`), proposes rules (`roles`, `clock`, `spelling`) or takes given
ones (`rules`), and applies them; `derived_states` makes states of the history of an arm.
"""

from evenhand.fitting.cleaning.clean import CleanedRecords, clean_records
from evenhand.fitting.cleaning.raw_table import Finding
from evenhand.fitting.cleaning.rules import Rules, read_rules
