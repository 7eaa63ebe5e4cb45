"""Write the output file of mining and, next to it, a record of its provenance."""

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from contrastive_encoders.core import RECORD_VERSION, InputError, check_version
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.io.atomic import atomic_file
from contrastive_encoders.io.manifest import CorruptFileError, read_record, write_record
from contrastive_encoders.io.output_directory import differences, overwrite_hint

log = logging.getLogger(__name__)


def record_path(output: Path) -> Path:
    """Return the path of the record (provenance) that is written next to the output file."""
    return output.with_name(f"{output.name}.json")


def is_finished(output: Path, identity: dict[str, Any], *, overwrite: bool) -> bool:
    """Return whether the output file exists and was mined from the same inputs with the same settings.

    Raises:
        InputError: the file was mined with other inputs or settings, or has no record.
    """
    if not output.exists():
        return False
    try:
        record = read_record(record_path(output))
        before = record["identity"]
    except (OSError, CorruptFileError, KeyError):
        raise InputError(
            key="output",
            value=output,
            expected=f"a new file, or an output file of this command that has its record {record_path(output).name} "
            "next to it",
            hint="Choose another output, or move the file.",
        ) from None
    if overwrite:
        return False
    hint = overwrite_hint("output")
    check_version(record.get("version"), "mined negatives", key="output", value=output, hint=hint)
    if differing := differences(before, json.loads(json.dumps(identity))):
        raise InputError(
            key="output", value=output, expected=f"the config with which this file was mined: {differing}", hint=hint
        )
    return True


def write_rows(
    output: Path,
    account: dict[str, Any],
    pairs: Iterable[tuple[str, str]],
    mined: Iterable[Mapping[str, Any]],
    num_negatives: int,
) -> None:
    """Write the mined rows atomically, and next to them a record that contains the input files, the number of rows, and
    the number of pairs with too few negatives.
    """
    rows, input_rows = 0, set(pairs)
    with atomic_file(output) as part:
        with part.open("w", encoding="utf-8") as file:
            for row in mined:
                if (row["anchor"], row["positive"]) in input_rows:
                    scores = [round(score, 6) for score in row["scores"]]
                    file.write(json.dumps({**row, "scores": scores}, ensure_ascii=False) + "\n")
                    rows += 1
        if not rows:
            raise InputError(
                key="num_negatives",
                value=num_negatives,
                expected="a smaller number, since no pair has this many negatives",
                hint="Reduce num_negatives, increase range_max, reduce the margin, or use a larger corpus.",
            )
        too_few = len(input_rows) - rows
        # The record is written before the rows, and would be attributed to an output file of another job
        output.unlink(missing_ok=True)
        write_record(record_path(output), {"version": RECORD_VERSION, **account, "rows": rows, "too_few": too_few})
    for rule, number in account["left_out"].items():
        log.info("%s excluded %s.", rule, count_of(number, "candidate"))
    log.info(
        "%s: %s with %s each; skipped %s with fewer negatives.",
        *(output, count_of(rows, "row"), count_of(num_negatives, "negative"), count_of(too_few, "pair")),
    )
