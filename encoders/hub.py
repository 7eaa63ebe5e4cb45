"""Whether the Hugging Face hub can be reached, asked once: its own client would try for a minute per model."""

import functools
import logging
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from transformers.utils.hub import is_offline_mode

log = logging.getLogger(__name__)

SECONDS = 5.0


def only_local(name: str) -> bool:
    """True where ``name`` must come from the disk: a folder, or a hub id while there is no hub."""
    return (
        Path(name).is_dir()
        or is_offline_mode()
        or out_of_reach(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    )


@functools.cache
def out_of_reach(endpoint: str) -> bool:
    """No answer of any kind within a few seconds; an answer that says no, or whose certificate we doubt, is one."""
    try:
        urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=SECONDS).close()
    except urllib.error.HTTPError:
        return False
    except OSError as error:
        if isinstance(getattr(error, "reason", error), ssl.SSLError):
            return False
        log.warning("%s is out of reach (%s); models come from the cache on this disk only.", endpoint, error)
        return True
    return False
