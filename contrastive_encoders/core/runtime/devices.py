"""Resolution and checks of the keys ``device`` and ``devices``."""

import os
from typing import TYPE_CHECKING

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.child_processes import check_number
from contrastive_encoders.core.runtime.process_group import local_rank

if TYPE_CHECKING:
    import torch


def device_of(name: str) -> str:
    """Return the device that the key ``device`` names. ``auto`` is this process's GPU if there is one, else the CPU.

    Raises:
        InputError: the device does not exist.
    """
    import torch  # imported only after --help has been answered

    if name == "auto":
        return f"cuda:{local_rank()}" if torch.cuda.is_available() else "cpu"
    check_usable(name, "auto, cpu, cuda")
    return name


def check_usable(device: "str | torch.device", names: str) -> None:
    """Check that a device exists and that this torch supports it.

    Args:
        names: other valid values, for the error message.

    Raises:
        InputError: the device cannot be used.
    """
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        expected = f"{names}, or a device such as cuda:1 that is usable here ({reason})"
        raise InputError(key="device", value=device, expected=expected) from None


def check_devices(number: int, device: str) -> None:
    """Check that the host has enough devices to start one process per device. If torchrun or srun has started the
    processes, nothing is checked.

    Raises:
        InputError: there are fewer GPUs; or there are none, and more than four processes would share a core.
    """
    if number > 1 and "WORLD_SIZE" not in os.environ:
        import torch

        check_number("devices", number, torch.cuda.device_count() if device != "cpu" else 0)
