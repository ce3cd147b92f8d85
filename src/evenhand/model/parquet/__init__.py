"""Models in Parquet: written as arms come, opened without reading them, and read by rows.

    metadata  `evenhand`: JSON with version, budget, discount, criterion, over, welfare, resources, states, actions
    columns   transitions, rewards, usage           lists of numbers, one row per arm or per block of equal arms
              initial, count, group, floor, name    optional
              states, actions                       optional labels of a row; by default those of the metadata

Lists are flat, in the order of the axes, or nested. With S states, A actions and K resources `transitions` has S A S
numbers, `rewards` S A, `usage` A K or S A K. In a folder all files `*.parquet` are parts of one table, in the order of
their names.

An opened model (`StoredArms`) holds a few numbers per file, and 8 bytes per row if rows stand for several arms. Ranges
of rows (`RowRange`) are small, can be sent to workers, and read the same wherever they are read. Only this package
uses PyArrow, which is imported when a table is opened.

    rows    ranges of rows as arms, with every fault
    stored  `open_arms`, `StoredArms`; metadata and columns
    writer  `ArmWriter`, `write_arms`, `save_parquet`, results per row
"""

from evenhand.model.parquet.rows import BATCH_ROWS, MOST_FAULTS, ArmRows, RowRange, parts_of
from evenhand.model.parquet.stored import IN_MEMORY_ROWS, KEY, VERSION, StoredArms, needs_pyarrow, open_arms
from evenhand.model.parquet.writer import ArmWriter, TableWriter, list_column, save_parquet, write_arms, write_rows
