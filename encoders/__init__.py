"""Encoders, cross-encoders, and training objectives. Importing this package loads neither torch nor transformers."""

import logging

# peft imports bitsandbytes, which warns about a kernel for 4-bit inference that is not used here
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
