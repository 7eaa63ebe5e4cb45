"""The averages of the papers' tables, recomputed from their rows."""

import pytest

from contrastive_encoders.evaluation.catalog import has_form
from contrastive_encoders.evaluation.paper_tables import averages
from contrastive_encoders.statistics.bootstrap import Estimate

# Giorgi et al. 2021, table 2: CR MR MPQA SUBJ SST2 SST5 TREC MRPC(acc, F1) SICK-E SICK-R STS-B COCO STS12..16; Avg
DECLUTR = {
    "GloVe": (
        [78.78, 77.70, 87.76, 91.25, 80.29, 44.48, 83.00, (73.39, 81.45)],
        [78.89, 72.30, 62.86, 0.40, 53.44, 51.24, 55.71, 59.62, 57.93],
        65.47,
    ),
    "DeCLUTR-base": (
        [90.68, 85.16, 88.52, 95.78, 90.01, 51.18, 93.20, (74.61, 82.65)],
        [83.84, 78.62, 79.39, 62.35, 63.56, 72.58, 71.70, 79.95, 79.59],
        79.10,
    ),
}
PROBING = {  # table 3
    "GloVe": ([57.82, 81.10, 31.41, 62.70, 49.74, 83.58, 78.39, 76.31, 49.55, 53.62], 62.42),
    "InferSent": ([78.76, 89.50, 37.72, 80.16, 61.41, 88.56, 86.83, 83.91, 52.11, 66.88], 72.58),
    "DeCLUTR-base": ([84.62, 68.98, 38.35, 74.78, 87.85, 88.82, 86.56, 83.88, 65.08, 67.54], 74.65),
}
CONCATENATED = {  # STS12..16, STS-B, SICK-R; Schick and Schuetze 2021, table 1, and Chen et al. 2022, table 2
    "Avg. GloVe": ([55.14, 70.66, 59.73, 68.25, 63.66, 58.02, 53.76], 61.32),
    "DINO x2": ([70.27, 81.26, 71.25, 80.49, 77.18, 77.82, 68.09], 75.20),
    "DINO x1x2": ([64.87, 78.30, 66.38, 79.60, 76.47, 76.51, 74.26], 73.77),
    "GenSE": ([80.72, 87.43, 83.96, 88.63, 85.19, 87.65, 79.87], 84.78),
    "GenSE+": ([80.65, 88.18, 84.69, 89.03, 85.82, 87.88, 80.10], 85.19),
}
MEAN_OVER_SUBSETS = {  # Schick and Schuetze 2021, table 5
    "CLEAR": ([49.0, 48.9, 57.4, 63.6, 65.6], 56.9),
    "DeCLUTR": ([64.2, 70.4, 70.0, 77.5, 75.4], 71.5),
    "DINO x2": ([65.3, 71.8, 72.7, 75.9, 76.9], 72.5),
}
DOMAIN = {  # Chen et al. 2022, table 3: AskUbuntu CQADupStack TURL PIT BIOSSES
    "SimCSE-BERT": ([53.5, 12.4, 75.6, 66.9, 68.4], 55.4),
    "GenSE": ([58.2, 15.3, 76.3, 75.9, 73.1], 59.8),
    "TSDAE": ([59.4, 14.5, 76.8, 69.2, 47.4], 53.5),
    "GenSE adapted": ([60.3, 16.0, 76.7, 76.7, 77.9], 61.5),
}
FIVE = {  # "STS12-16" of Schick and Schuetze 2021, table 2
    "DINO x2": ([70.27, 81.26, 71.25, 80.49, 77.18], 76.09),
}
TWITTER = {  # Chen et al. 2022, table 3: TURL, PIT, and their average
    "SimCSE-BERT": ([75.6, 66.9], 71.2),
    "GenSE": ([76.3, 75.9], 76.1),
    "TSDAE": ([76.8, 69.2], 73.0),
    "GenSE adapted": ([76.7, 76.7], 76.7),
}
TASKS = ("cr", "mr", "mpqa", "subj", "sst2", "sst5", "trec")
YEARS = tuple(f"sts{year}" for year in range(12, 17))
SEVEN = [*(f"{year}/all/spearman" for year in YEARS), "stsb/cosine/spearman", "sickr/cosine/spearman"]
PROBES = (
    "length",
    "wordcontent",
    "depth",
    "topconstituents",
    "bigramshift",
    "tense",
    "subjnumber",
    "objnumber",
    "oddmanout",
    "coordinationinversion",
)
PAPERS = [  # average, its scores, rows, and tolerance
    ("probing-avg10/fast/accuracy", [f"{task}/fast/accuracy" for task in PROBES], PROBING, 0.0051),
    ("sts-avg7/all/spearman", SEVEN, CONCATENATED, 0.01),  # DINO's are averages of numbers before rounding
    ("sts-avg5/all/spearman", SEVEN[:5], FIVE, 0.0051),
    ("twitter-avg2/cosine/ap", ["twitterurl/cosine/ap", "pit/cosine/ap"], TWITTER, 0.0501),
    ("sts-avg5/mean/spearman", [f"{year}/mean/spearman" for year in YEARS], MEAN_OVER_SUBSETS, 0.051),
    (
        "domain-avg5/cosine/score",
        [
            "askubuntu/cosine/map",
            "cqadupstack/cosine/map@100",
            "twitterurl/cosine/ap",
            "pit/cosine/ap",
            "biosses/cosine/spearman",
        ],
        DOMAIN,
        0.0501,
    ),
]


def computed(scores: dict[str, float]) -> dict[str, float]:
    return {one.name: one.estimate.value for one in averages({name: Estimate(value) for name, value in scores.items()})}


def declutr_scores(row: str) -> dict[str, float]:
    sentences, pairs, _ = DECLUTR[row]
    *accuracies, (accuracy, f1) = sentences
    sicke, sickr, stsb, coco, *years = pairs
    return {
        **{f"{task}/default/accuracy": value for task, value in zip(TASKS, accuracies, strict=True)},
        "mrpc/default/accuracy": accuracy,
        "mrpc/default/f1": f1,
        "sicke/default/accuracy": sicke,
        "sickr/regressor/spearman": sickr,
        "stsb/regressor/spearman": stsb,
        "coco/default/recall": coco,
        **{f"{year}/mean/spearman": value for year, value in zip(YEARS, years, strict=True)},
    }


@pytest.mark.parametrize("row", DECLUTR)
def test_declutrs_seventeen(row):
    assert computed(declutr_scores(row))["declutr-avg17/default/score"] == pytest.approx(DECLUTR[row][2], abs=0.0051)


@pytest.mark.parametrize(
    ("name", "members", "row", "near"),
    [(name, members, row, near) for name, members, rows, near in PAPERS for row in rows.values()],
)
def test_averages_are_the_published_ones(name, members, row, near):
    values, expected = row
    assert computed(dict(zip(members, values, strict=True)))[name] == pytest.approx(expected, abs=near)


def test_sixteen_of_declutrs_are_called_so_and_named():
    scores = declutr_scores("DeCLUTR-base")
    coco = scores.pop("coco/default/recall")
    found = next(one for one in averages({n: Estimate(v) for n, v in scores.items()}) if one.name.startswith("declutr"))
    assert found.name == "declutr-avg16/default/score"
    assert set(found.members) == set(scores)
    assert (16 * found.estimate.value + coco) / 17 == pytest.approx(79.10, abs=0.0051)


def test_the_seven_are_rounded_first():
    assert computed(dict.fromkeys(SEVEN, 70.0049))["sts-avg7/all/spearman"] == pytest.approx(70.0, abs=1e-9)
    assert computed(dict.fromkeys(SEVEN[:6], 70.0)).keys() == {"sts-avg5/all/spearman"}
    assert computed(dict.fromkeys(SEVEN[:4], 70.0)) == {}


def test_another_form_of_the_text_is_another_average():
    scores = declutr_scores("DeCLUTR-base")
    formed = {name for name in scores if has_form(name.split("/")[0])}
    found = computed(scores | {name.replace("/", "@senteval/", 1): scores[name] - 1 for name in formed})
    with_form = len({name.split("/")[0] for name in formed})
    assert with_form < 16, "some tasks have one form only"
    assert found["declutr-avg17/default/score"] == pytest.approx(79.10, abs=0.0051)
    assert found["declutr-avg17@senteval/default/score"] == pytest.approx(79.10 - with_form / 17, abs=0.0051)
