"""The reproduction of the paper: its tables, figures and claims beside our numbers.

    python -m paper                         list the targets
    python -m paper table-1 figure-2        run some of them (figure-2 is 2a, 2b and 2c)
    python -m paper all --quick             everything at reduced size
    python -m paper all                     everything; about 40 minutes on two cores

`targets/*.toml` has one file per table or figure: the published numbers and the cells to run. `cells` computes a cell,
`run` runs those that have no record yet, `tables` puts our figures beside the published ones, `claims` checks what the
paper says, `figures` and `report` draw and write. `records/` holds the records of the last full run, from which
`python -m paper --docs` fills in the tables of README and docs.
"""
