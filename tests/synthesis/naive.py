"""Sampling of a token, written slowly, and a test whether many texts have its distribution."""

import numpy as np
from scipy import stats

from contrastive_encoders.synthesis.decoding.sampling import digest, uniforms


def restricted(p, how):
    """Return (tokens,) probabilities after top-k and top-p."""
    ranked = np.argsort(-p, kind="stable")[: how.top_k or len(p)]
    kept, mass = [], 0.0
    for token in ranked:
        if kept and how.top_p and mass >= how.top_p * p[ranked].sum():
            break
        kept.append(token)
        mass += p[token]
    found = np.zeros_like(p)
    found[kept] = p[kept] / p[kept].sum()
    return found


def numbers(prompt, sample, how):
    """Return random numbers in 0..1, one for each token of a sample."""
    return uniforms(digest(how.seed, prompt.key), range(sample, sample + 1), how.max_new_tokens)[0]


def drawn(p, number):
    """Draw a token; the engine counts ids from the end."""
    return len(p) - 1 - int(np.searchsorted(np.cumsum(p[::-1]), number, side="right"))


def chi_square(found, wanted):
    """Return the number of kinds of text that are frequent enough to count, and the p-value of their counts."""
    counts = np.array([[found[key], found.total() * p] for key, p in wanted.items()])
    rare = counts[:, 1] < 5
    counts = np.vstack([counts[~rare], counts[rare].sum(0)]) if rare.any() else counts
    return len(counts), stats.chisquare(counts[:, 0], counts[:, 1]).pvalue
