"""The data of the evaluation: where each set comes from, how it becomes a table, and whether a table is whole."""

from evaluation.acquire.check import check
from evaluation.acquire.fetch import fetch
from evaluation.acquire.own import own_report
from evaluation.acquire.registry import Report, Row, listing, manifest

__all__ = ["Report", "Row", "check", "fetch", "listing", "manifest", "own_report"]
