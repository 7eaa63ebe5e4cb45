import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from contrastive_encoders.core import Ragged
from contrastive_encoders.encoders.kernels.chunks import distinct, padded, plan_chunks

LENGTHS = st.lists(st.integers(1, 600), max_size=80).map(lambda values: np.array(values, dtype=np.int64))


@given(LENGTHS, st.integers(1, 4000), st.integers(0, 1000))
def test_every_sequence_lies_in_one_chunk_within_the_budget(lengths, budget, chunk_cost):
    chunks = plan_chunks(lengths, budget, chunk_cost)
    assert sorted(row for chunk in chunks for row in chunk.sequences) == list(range(len(lengths)))
    for chunk in chunks:
        assert chunk.width == lengths[chunk.sequences].max()
        assert chunk.total_tokens <= budget or len(chunk.sequences) == 1
        assert chunk.total_tokens - lengths[chunk.sequences].sum() <= chunk_cost


@given(LENGTHS.filter(len), st.integers(1, 4000))
def test_padding_and_mask_are_those_of_each_sequence_alone(lengths, budget):
    flat = torch.arange(1, int(lengths.sum()) + 1)
    alone = torch.split(flat, lengths.tolist())
    chunks = plan_chunks(lengths, budget, 64)
    for chunk, (values_BT, mask_BT) in zip(chunks, padded(flat, lengths, chunks, fill=0), strict=True):
        assert values_BT.shape == mask_BT.shape == (len(chunk.sequences), chunk.width)
        for row, values, mask in zip(chunk.sequences, values_BT, mask_BT, strict=True):
            assert values[mask].tolist() == alone[row].tolist()
            assert not values[~mask].any()


@given(st.lists(st.lists(st.integers(0, 2), max_size=4), min_size=1, max_size=30))
def test_distinct_keeps_each_sequence_once_and_knows_its_place(rows):
    flat = torch.tensor([token for row in rows for token in row], dtype=torch.long)
    kept, places = distinct(Ragged(flat, np.array([len(row) for row in rows])))
    parts = [tuple(part.tolist()) for part in kept.ids.split(kept.lengths.tolist())]
    assert parts == list(dict.fromkeys(map(tuple, rows)))
    assert [parts[place] for place in places] == [tuple(row) for row in rows]
