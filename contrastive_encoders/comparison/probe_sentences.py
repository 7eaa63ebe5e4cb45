"""Compare the embeddings that the encoders of a comparison compute for the same sentences."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.core.unit_rows import unit_rows
from contrastive_encoders.reports.tables import Table, columns, shorten

TABLE_SENTENCES, TABLE_NEIGHBORS = 5, 3  # sentences in a table, and neighbors of each
PAGE_NEIGHBORS = 6  # neighbors of a sentence on a page
MAX_SENTENCES = 1000  # maximum number of sentences on a page


class ProbeEmbeddings(NamedTuple):
    """Embeddings of the probe sentences, computed by the encoder of an arm's first run.

    ``units`` (sentences, width) are normalized embeddings; ``places`` (sentences, 2) is their projection to two
    dimensions.
    """

    arm: Arm
    sentences: list[str]
    units: np.ndarray
    places: np.ndarray
    uniformity: float
    alignment: float | None  # alignment of the pairs rated above 4, if similarities were stored


def probe(arm: Arm, sentences: Sequence[str], vectors: np.ndarray) -> ProbeEmbeddings:
    import torch

    from contrastive_encoders.core.embedding_diagnostics import uniformity

    units = unit_rows(vectors)
    spread = float(uniformity(torch.from_numpy(units)))
    return ProbeEmbeddings(arm, list(sentences), units, project(vectors), spread, alignment(arm))


def alignment(arm: Arm) -> float | None:
    """Return Wang and Isola's alignment over pairs rated above 4, computed from the cosine similarities that the arm's
    first run has stored.

    Return None if no such similarities were stored.
    """
    items = arm.runs[0].items
    for task in ("stsb-dev", "stsb", *(items.cosines if items else ())):
        if items and task in items.cosines and (items.gold[task] > 4).any():
            return float(np.mean(2 - 2 * items.cosines[task][items.gold[task] > 4]))
    return None


def project(vectors: np.ndarray) -> np.ndarray:
    """Project embeddings to two dimensions, (N, 2), by PCA."""
    from sklearn.decomposition import PCA

    return PCA(2, random_state=1).fit_transform(vectors)


def align_maps(probes: Sequence[ProbeEmbeddings]) -> list[ProbeEmbeddings]:
    """Rotate, reflect, and scale every 2-D map to fit the first map (orthogonal Procrustes)."""
    from scipy.linalg import orthogonal_procrustes

    aligned = list[ProbeEmbeddings]()
    for probe in probes:
        places = probe.places - probe.places.mean(0)
        places = places / max(float(np.linalg.norm(places)), 1e-12)
        if aligned:
            turn, _ = orthogonal_procrustes(places, aligned[0].places)
            places = places @ turn
        aligned.append(probe._replace(places=places))
    return aligned


def displayed_rows(probes: Sequence[ProbeEmbeddings]) -> list[int]:
    """Return the indices of the sentences to display on a page: all sentences, or ``MAX_SENTENCES`` evenly spaced
    sentences if there are more.
    """
    number = len(probes[0].sentences) if probes else 0
    return np.linspace(0, number - 1, min(number, MAX_SENTENCES)).round().astype(int).tolist() if number else []


def explorer(probes: Sequence[ProbeEmbeddings], displayed: Sequence[int]) -> dict[str, Any]:
    """Return the data for the page's script: the sentences and, for each arm, the nearest neighbors of each sentence
    with their cosines x 100.
    """
    arms = list[dict[str, Any]]()
    for probe in probes:
        cosines = probe.units[displayed] @ probe.units[displayed].T
        np.fill_diagonal(cosines, -np.inf)
        neighbors = np.argsort(-cosines, axis=1, kind="stable")[:, : min(PAGE_NEIGHBORS, len(displayed) - 1)]
        percent = (100 * np.take_along_axis(cosines, neighbors, axis=1)).round().astype(int)
        arms.append({"arm": probe.arm.label, "near": neighbors.tolist(), "cosines": percent.tolist()})
    return {"sentences": [shorten(probes[0].sentences[row]) for row in displayed] if probes else [], "arms": arms}


def neighbor_table(probes: Sequence[ProbeEmbeddings]) -> Table | None:
    """Return a table of the nearest neighbors, in each arm, of a few evenly spaced sentences."""
    if not probes or len(probes[0].sentences) < 2:
        return None
    sentences, rows = probes[0].sentences, list[list[str]]()
    for query in np.linspace(0, len(sentences) - 1, min(TABLE_SENTENCES, len(sentences))).round().astype(int):
        for one in probes:
            cosines = one.units @ one.units[query]
            order = np.argsort(-cosines, kind="stable")
            neighbors = [row for row in order if sentences[row] != sentences[query]][:TABLE_NEIGHBORS]
            cells = [f"{shorten(sentences[row])} ({cosines[row]:.2f})" for row in neighbors]
            rows.append([shorten(sentences[query]), one.arm.label, *cells, *[""] * (TABLE_NEIGHBORS - len(cells))])
    note = "Neighbors among the sentences of the map, with their cosine; first run of each arm."
    heads = columns("sentence", "arm", *["nearest", "second", "third"][:TABLE_NEIGHBORS])
    return Table(heads, rows, "Nearest neighbors", note, "neighbors", folded=True)
