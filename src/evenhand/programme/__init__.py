"""Running a programme: a roster, what is observed, what is decided and what comes of it, in a database.

    Programme    the steps observe → plan → accept → record, each of them one transaction
    Store        one SQLite file, or a PostgreSQL database by its address

Needs the extra `service`. Nothing is imported here, so that who asks for help does not wait for a database.
"""
