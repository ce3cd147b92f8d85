"""REPRODUCE: the tables and figures of the paper, cell by cell.

names     the names of targets, light to load
spec      what a target is: one TOML file, with the published numbers and the cells to run
cells     what each kind of cell computes
run       workers, resuming, progress
outcomes  what each kind of cell finds: the schema of its records
records   one JSON file a cell, and the manifest of a run
"""
