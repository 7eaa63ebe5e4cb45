"""The models; importing the package loads neither torch nor transformers."""

import logging

# peft imports it, and it warns about a kernel for inference in 4 bits, which nothing here calls
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
