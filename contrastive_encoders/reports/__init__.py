"""Reports for people: tables, figures, HTML pages, and progress."""
