"""Evaluation data: download, conversion to tables, and integrity checks."""

from evaluation.acquire.check import check
from evaluation.acquire.fetch import fetch
from evaluation.acquire.registry import Report, Row, listing, manifest
from evaluation.acquire.user_tasks import own_report

__all__ = ["Report", "Row", "check", "fetch", "listing", "manifest", "own_report"]
