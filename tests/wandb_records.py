"""Local Weights & Biases records (``WANDB_MODE=offline``), read back without its server.

A ``.wandb`` file is seven bytes and then LevelDB's log: blocks of 32,768 bytes, records with a header of crc, length
and kind (1 full, 2 first, 3 middle, 4 last part). The payload is W&B's protocol buffer.
"""

import json
import struct

BLOCK, HEAD, PREAMBLE = 32768, 7, 7


def values_of(items) -> dict:
    """Return the values of a record, by their names."""
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def read_records(file):
    """Return the records in the order in which they were written."""
    from wandb.proto import wandb_internal_pb2

    content, place, held = file.read_bytes(), PREAMBLE, b""
    while place + HEAD <= len(content):
        left = BLOCK - place % BLOCK
        if left < HEAD:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + HEAD])
        part = content[place + HEAD : place + HEAD + length]
        held = part if kind in (1, 2) else held + part
        place += HEAD + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(held)
            yield record
