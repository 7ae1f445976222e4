"""Functions that other tools document, served from a report: thin views, one file a document."""
