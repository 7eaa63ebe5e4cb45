"""Settings of decoding in tests: as for the second sentences of DINO."""

from contrastive_encoders.synthesis.decoding.continuations import Decoding
from contrastive_encoders.synthesis.task_spec import STOP


def decoding(**changes):
    return Decoding(**{"top_k": 5, "ban_eos": True, "stop": STOP, **changes})
