"""The database of a state folder: one SQLite file with jobs, plans, ledgers, events and fleets.

`database` opens it and runs transactions, `schema` has its tables and their versions, `filesystem` chooses SQLite's
journal, `old_folders` imports the files of versions before the database.
"""
