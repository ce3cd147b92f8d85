"""Arms as a table: a model in Parquet, read in batches and never all at once.

    schema    what stands in the metadata, which columns there are, and why a file is refused
    decoding  rows of a file as ArmTables, every fault with its row
    reading   `open_arms`: `StoredArms`, cut into shards that are small recipes; `read_shard`
    writing   `write_arms`, `ArmWriter`: arms as they come, written beside and renamed; results by arm

Only these files know PyArrow, which is imported when a table is opened.
"""
