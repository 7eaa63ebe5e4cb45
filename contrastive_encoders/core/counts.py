"""Counts in messages: numbers with a noun in the singular or plural."""

import re


def plural(noun: str) -> str:
    """Return the plural of a regular noun, or of a noun in -sis, such as hypothesis."""
    if noun.endswith("sis"):
        return f"{noun[:-2]}es"
    if re.search("[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def count_of(number: int, noun: str) -> str:
    """Return a number and its noun, which is given in the singular: ``1 run``, ``1,200 queries``."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"
