"""Evaluation data: download, conversion to tables, and integrity checks."""

from contrastive_encoders.evaluation.download.check import check
from contrastive_encoders.evaluation.download.custom_tasks import own_report
from contrastive_encoders.evaluation.download.fetch import fetch
from contrastive_encoders.evaluation.download.registry import Report, Row, listing, manifest

__all__ = ["Report", "Row", "check", "fetch", "listing", "manifest", "own_report"]
