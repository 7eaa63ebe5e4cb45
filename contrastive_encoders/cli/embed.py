"""Embed files of texts: ``contrastive-encoders embed encoder=... input=... output=...``."""

import logging
import os
from collections.abc import Sequence

from omegaconf import DictConfig

from contrastive_encoders.cli.hydra_main import command_line, config_of
from contrastive_encoders.core.config_schema import require
from contrastive_encoders.core.runtime.module_imports import module_imports
from contrastive_encoders.core.runtime.process_group import refuse_launcher
from contrastive_encoders.export.embed_config import EmbedConfig
from contrastive_encoders.export.input_texts import open_texts
from contrastive_encoders.io.file_discovery import QUERY_FILES, count_skipped
from contrastive_encoders.io.text_files import Encoding

log = logging.getLogger(__name__)

# oneDNN, and PyTorch's layer over it, cache code and buffers for 1,024 shapes each, and every window has new shapes, so
# memory would grow over dozens of windows. Both variables are read when torch first computes.
for cache, shapes in (("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64"), ("LRU_CACHE_CAPACITY", "16")):
    os.environ.setdefault(cache, shapes)


def run(cfg: DictConfig, _: Sequence[str] = ()) -> None:
    """Check the keys and the input, then compute and write all embeddings that the output file does not contain yet."""
    refuse_launcher()
    config = config_of(cfg, EmbedConfig)
    require(config, "encoder", "an encoder")
    require(config, "input", "a file of texts")
    require(config, "output", "FILE.npy or FILE.parquet")
    config.check_keys()
    texts = open_texts(config.input or [], config.column, Encoding(config.encoding, "encoding"))
    if QUERY_FILES in (skipped := count_skipped(config.input or [], texts.files)):
        log.info("input: skipped: %d %s", skipped[QUERY_FILES], QUERY_FILES)
    with module_imports():
        from contrastive_encoders.export.embed import write_vectors  # imports torch, which takes seconds

    write_vectors(config, texts)


main = command_line("embed", run, EmbedConfig)
