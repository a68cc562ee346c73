"""The command line: one file per verb. Nothing here is imported before its verb is named, so that it feels instant."""
