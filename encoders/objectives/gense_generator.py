"""GenSE's generator and discriminator, which are one and the same model (Chen et al., EMNLP 2022, section 3).

A T5 or a causal language model generates entailed and contradicting sentences, and predicts whether one sentence
entails another.
"""

from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel

from contrastive_encoders.core import HeldOutTexts, Seq2SeqBatch, StepOutput
from contrastive_encoders.core.gense_prompts import PromptIds, parse_prompts
from contrastive_encoders.encoders.base_module import TrainedModule
from contrastive_encoders.encoders.kernels.chunks import on_device
from contrastive_encoders.encoders.loading.backbones import from_pretrained, load_tokenizer
from contrastive_encoders.encoders.loading.generative import is_causal_generator
from contrastive_encoders.encoders.loading.trainable import TrainableBackbone
from contrastive_encoders.encoders.objectives.gense_generator_config import GenSEGeneratorConfig
from contrastive_encoders.encoders.objectives.seq2seq import CausalWriter, T5Writer
from contrastive_encoders.losses.gather import global_mean, ranks, world_size

TRUE = 2  # kind of instances whose answer is yes


class GenSEGenerator(TrainedModule):
    """Objective whose loss is the weighted mean over the target tokens of a batch; answer tokens have the weight
    ``answer_weight``, all others 1.

    With a weight of 1, a model without pretraining does not learn answers, which have one token, while a text has
    about a dozen. ``perplexity="mean_of_batches"`` averages the mean losses of batches of ``eval_batch_size`` held-out
    texts, as the published runs did.
    """

    objective = "gense_generator"
    consumes = Seq2SeqBatch
    tiny_backbone = "t5"
    product = "generator"

    settings: GenSEGeneratorConfig

    def __init__(self, settings: GenSEGeneratorConfig) -> None:
        super().__init__(settings)
        backbone = settings.backbone
        alone = is_causal_generator(from_pretrained(AutoConfig, backbone), backbone)
        self.prompts = parse_prompts(settings.prompts, settings.prompt_assembly, "prompts")
        answers = PromptIds(self.prompts, load_tokenizer(backbone), alone=alone).answers()
        trainable = TrainableBackbone(settings)
        self.seq2seq = (CausalWriter if alone else T5Writer)(
            trainable.adapter_base.base,
            answers,
            token_budget=settings.token_budget,
            activation_checkpointing=settings.activation_checkpointing,
        ).train()
        trainable.prepare(self.seq2seq.transformer)

    @property
    def transformer(self) -> PreTrainedModel:
        return self.seq2seq.transformer

    def training_step(self, batch: Seq2SeqBatch, batch_idx: int) -> StepOutput:
        written = self.seq2seq.write(batch.sources, batch.targets)
        times_N = np.where(batch.kinds < TRUE, 1, self.settings.answer_weight)
        weighed = written.losses_N * on_device(times_N, written.losses_N.device)
        loss = global_mean(weighed.sum(), int((batch.targets.lengths * times_N).sum()))
        metrics = self._parts(batch, written.losses_N.detach(), written.answers_NA)
        real_tokens = int(batch.sources.lengths.sum() + batch.targets.lengths.sum())
        return self.step_output(loss, metrics, batch, real_tokens, written.padding_tokens)

    def held_out_texts(self) -> HeldOutTexts:
        """Compute the losses of the data module's held-out texts, and whether the answers for its held-out pairs are
        correct.

        All ranks must call this method, and it returns the same result on each.
        """
        data = cast(Any, self.trainer).datamodule
        size, (rank, world) = self.settings.eval_batch_size, ranks()
        losses, tokens, right = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        for batch in data.dev_batches("generation", size, rank, world):
            losses.append(self._write(batch).losses_N.double().cpu().numpy())
            tokens.append(batch.targets.lengths)
        for batch in data.dev_batches("discrimination", size, rank, world):
            right.append(is_correct(self._write(batch).answers_NA, batch.kinds).cpu().numpy())
        per_batch = self.settings.perplexity == "mean_of_batches"
        whole = [np.concatenate(in_order(batches)) for batches in (losses, tokens, right)]
        return HeldOutTexts(whole[0], whole[1], whole[2], size if per_batch else None)

    def _write(self, batch: Seq2SeqBatch) -> Any:
        sources, targets = (part._replace(ids=part.ids.to(self.device)) for part in (batch.sources, batch.targets))
        return self.seq2seq.write(sources, targets)

    def _parts(self, batch: Seq2SeqBatch, losses_N: Tensor, answers_NA: Tensor) -> dict[str, Tensor]:
        """Return the losses of texts and answers separately, and the accuracy of the answers.

        They are computed only at logged steps, because they need collective operations.
        """
        if not self.log_step:
            return {}
        is_text_N = batch.kinds < TRUE
        parts = {}
        for name, chosen_N in (("generation_loss", is_text_N), ("discrimination_loss", ~is_text_N)):
            chosen = torch.from_numpy(chosen_N).to(losses_N.device)
            parts[name] = global_mean(losses_N[chosen].sum(), int(batch.targets.lengths[chosen_N].sum()))
        pairs = torch.from_numpy(~is_text_N).to(losses_N.device)
        right = is_correct(answers_NA[pairs], batch.kinds[~is_text_N])
        parts["accuracy"] = global_mean(right.float().sum(), len(right))
        return parts


def is_correct(answers_NA: Tensor, kinds: np.ndarray) -> Tensor:
    """Return, for each of N pairs, whether the more likely of the answers yes and no is correct, (N,) bool."""
    says_yes_N = answers_NA[:, 0] >= answers_NA[:, 1]
    return says_yes_N == torch.from_numpy(kinds == TRUE).to(says_yes_N.device)


def in_order(batches: list[np.ndarray]) -> list[np.ndarray]:
    """Gather the batches of all ranks, to which they were assigned round-robin, and restore the original order."""
    world = world_size()
    if world == 1:
        return batches
    dealt: list[Any] = [None for _ in range(world)]
    dist.all_gather_object(dealt, batches)
    return [dealt[i % world][i // world] for i in range(sum(map(len, dealt)))]
