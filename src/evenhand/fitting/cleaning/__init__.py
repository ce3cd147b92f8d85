"""Cleaning of records by rules: from files as they come to a log that `fit` reads.

`clean_records` reads tables (`raw_table`), proposes rules (`columns_guess`, `spelling`) or takes given ones (`rules`),
and applies them (`clean`).
"""

from evenhand.fitting.cleaning.clean import CleanedRecords, clean_records
from evenhand.fitting.cleaning.raw_table import Finding
from evenhand.fitting.cleaning.rules import Rules, read_rules
