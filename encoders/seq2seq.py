"""An encoder-decoder that is taught to write: batches cut into chunks, the head applied to real target tokens alone.

Shape letters: N pairs of source and target, B pairs of a chunk, S tokens of its longest source, T of its longest
target, M target tokens without padding, V vocabulary, A answers.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from contracts import InputError, Ragged
from encoders.backbones import check_vocabulary, load_tokenizer, load_whole
from encoders.chunks import Chunk, check_recompute, chunk_cost, computed, padded, places_in, plan_chunks, recomputes
from encoders.faster_layers import fast_linears
from encoders.masked_rows import head_sees
from encoders.sentence_encoder import affordable_tokens, attention_for
from losses.tokens import token_losses


class Written(NamedTuple):
    """In the order of the batch."""

    losses_N: Tensor  # float32, -log p of each target given its source, with gradient
    answers_NA: Tensor  # float32 logits of the answers at the first place of the target; detached
    padded_tokens: int  # padding that was computed along


class Seq2Seq(nn.Module):
    """``answers`` are token ids whose logits at the decoder's first place are given back.

    Raises:
        InputError: the backbone is no encoder-decoder, or an option is unknown.
    """

    def __init__(self, backbone: str, answers: Sequence[int], *, token_budget: int | None, recompute: str) -> None:
        super().__init__()
        check_recompute(recompute)
        self.transformer = load_seq2seq(backbone)
        self.tokenizer = load_tokenizer(backbone)
        check_vocabulary(self.transformer, self.tokenizer, backbone)
        self.answers = list(answers)
        self.token_budget = affordable_tokens(self.transformer) if token_budget is None else token_budget
        self.recompute = recompute

    def write(self, sources: Ragged, targets: Ragged) -> Written:
        """Under ``recompute="auto"`` chunks are recomputed in the backward pass only when the sources exceed the
        budget, which counts their tokens.
        """
        device, pad = sources.ids.device, cast(int, self.tokenizer.pad_token_id)
        chunks = plan_chunks(sources.lengths, self.token_budget, chunk_cost(device))
        answers = [Chunk(chunk.rows, int(targets.lengths[chunk.rows].max())) for chunk in chunks]
        again = recomputes(self.recompute, chunks, self.token_budget)
        read = padded(sources.ids, sources.lengths, chunks, pad)
        asked = padded(targets.ids, targets.lengths, answers, pad)
        pairs = zip(read, asked, strict=True)
        parts = [computed(self.write_chunk, *source, *target, again=again) for source, target in pairs]
        losses, logits = (torch.cat(column) for column in zip(*parts, strict=True))
        place_N = places_in(chunks).to(device)
        padding = sum(chunk.padded_tokens for chunk in [*chunks, *answers])
        padding -= int(sources.lengths.sum() + targets.lengths.sum())
        return Written(losses[place_N], logits[place_N].detach(), padding)

    def write_chunk(
        self, source_BS: Tensor, source_mask_BS: Tensor, target_BT: Tensor, target_mask_BT: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(B,) losses and (B, A) logits of the answers: no collective, nothing random but dropout."""
        start = self.transformer.config.decoder_start_token_id
        shifted_BT = torch.cat([target_BT.new_full((len(target_BT), 1), start), target_BT[:, :-1]], dim=1)
        with attention_for(source_BS), fast_linears(self.transformer), head_sees(self.transformer, target_mask_BT):
            output = self.transformer(
                input_ids=source_BS,
                attention_mask=source_mask_BS.long(),
                decoder_input_ids=shifted_BT,  # its padding lies behind what is real, where no real token looks
                use_cache=False,
            )
        logits_MV = output.logits
        losses_M = token_losses(logits_MV, target_BT[target_mask_BT])
        row_M = target_mask_BT.nonzero()[:, 0]
        losses_B = losses_M.new_zeros(len(target_BT)).index_add(0, row_M, losses_M)
        lengths_B = target_mask_BT.sum(1)
        first_B = lengths_B.cumsum(0) - lengths_B
        return losses_B, logits_MV[first_B][:, self.answers].float()


def load_seq2seq(backbone: str) -> PreTrainedModel:
    """An encoder-decoder with its head, in float32; training keeps no cache.

    Raises:
        InputError: it is none, or its checkpoint lacks weights (transformers would draw random ones and go on).
    """

    def refused(why: str) -> InputError:
        return InputError(
            f"backbone={backbone}: {why}, which a model that writes needs. Take a whole encoder-decoder, such as "
            "google-t5/t5-base."
        )

    model = load_whole(AutoModelForSeq2SeqLM, backbone, refused, dtype=torch.float32)
    if model.config.decoder_start_token_id is None:
        raise InputError(
            f"backbone={backbone}: its config names no decoder_start_token_id, so nothing begins a text. Set it in "
            "config.json; T5 has that of its pad token."
        )
    return model
