"""Migrations of the service's database, run by alembic."""
