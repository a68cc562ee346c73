"""The database of a state folder: one SQLite file with jobs, plans, ledgers, events and fleets.

`database` opens it and runs transactions, `schema` has its tables and their versions, `filesystem` decides which
journal SQLite uses, `old_folders` reads what versions before the database kept in files.
"""
