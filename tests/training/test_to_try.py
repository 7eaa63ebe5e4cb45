"""What a run speaks for trying: by numbers of real runs of all-MiniLM-L6-v2 on questions and answers."""

import pytest

from training.to_try import MOST, Facts, end_of, to_try
