"""Rules that decide which questions are kept, based on stored scores."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from contrastive_encoders.datamodules.near_duplicates import words_of
from contrastive_encoders.synthesis.questions.generation import QuestionCandidate
from contrastive_encoders.synthesis.questions.passages import Collection
from contrastive_encoders.synthesis.questions.scores import RUN, NearestPassages, copied
from contrastive_encoders.synthesis.recipe_configs import QuestionRules
from contrastive_encoders.synthesis.rules.filters import NearDuplicates

KEPT = "kept"
EMPTY, CUT, FEW, MANY, COPIED, REPEATED, UNANSWERED, NOT_NEAREST, DUPLICATE = REASONS = (
    "empty",
    "cut off",
    "too few words",
    "too many words",
    "copied",
    "repeats the prompt",
    "not answered, says the judge",
    "others are nearer",
    "duplicate",
)
DUPLICATE_THRESHOLD = 0.8  # share of the words of both questions: near-duplicates


class Question(NamedTuple):
    """A candidate question with all scores and the rules that it violates."""

    id: str
    candidate: QuestionCandidate
    place: int  # index among all candidates
    copied: float  # share of its words that are in shared runs of three with the passage
    from_prompt: float  # the same for the prompt's examples, without the passage's runs
    rank: int | None
    broken: tuple[str, ...]  # all rules that it violates, each checked independently

    @property
    def outcome(self) -> str:
        return self.broken[0] if self.broken else KEPT

    @property
    def text(self) -> str:
        return self.candidate["text"]

    @property
    def style(self) -> str:
        return self.candidate["style"]

    @property
    def passage(self) -> int:
        return self.candidate["passage"]


def apply_rules(
    candidates: Sequence[QuestionCandidate],
    collection: Collection,
    neighbors: NearestPassages,
    rules: QuestionRules,
    examples: str,
) -> list[Question]:
    """Apply the rules to all candidate questions in order. A duplicate is similar to an earlier question that was kept.

    ``examples`` are the examples in the prompts, which questions should not repeat.
    """
    earlier, found = NearDuplicates(DUPLICATE_THRESHOLD), list[Question]()
    for place, one in enumerate(candidates):
        passage = collection.passages[one["passage"]]
        share, rank = copied(one["text"], passage.whole), int(neighbors.ranks_Q[place]) or None
        is_long = len(words_of(one["text"])) >= RUN
        from_prompt = copied(one["text"], examples, but_for=passage.whole) if is_long else 0.0
        broken = tuple(_broken(one, share, from_prompt, rank, rules))
        if not broken and rules.duplicates and earlier.earlier(one["text"]) is not None:
            broken = (DUPLICATE,)
        name = f"{passage.id}-{one['style']}-{one['number']}"
        found.append(Question(name, one, place, share, from_prompt, rank, broken))
    return found


def _broken(
    one: QuestionCandidate, share: float, from_prompt: float, rank: int | None, rules: QuestionRules
) -> Iterator[str]:
    words = len(one["text"].split())
    if not words_of(one["text"]):
        yield EMPTY
        return
    if not one["whole"]:
        yield CUT
    if words < rules.min_words:
        yield FEW
    if rules.max_words is not None and words > rules.max_words:
        yield MANY
    if rules.max_copied is not None and share > rules.max_copied:
        yield COPIED
    if rules.max_from_prompt is not None and from_prompt > rules.max_from_prompt:
        yield REPEATED
    if rules.min_p_yes is not None and (one["p_yes"] is None or one["p_yes"] < rules.min_p_yes):
        yield UNANSWERED
    if rules.max_rank is not None and (rank is None or rank > rules.max_rank):
        yield NOT_NEAREST


def tally(questions: Sequence[Question]) -> dict[str, dict[str, int]]:
    """Count, for each rule, the questions that violate it, and the questions for which it is the first violated
    rule.
    """
    first, every = Counter(one.outcome for one in questions), Counter(why for one in questions for why in one.broken)
    return {why: {"left_out": first[why], "break_it": every[why]} for why in REASONS}
