"""Private names of libraries are used only in `contrastive_encoders.compat`, and only if no public way exists."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import torch
import torch.distributed.tensor
from torch import nn
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.optimization import Adafactor
from transformers.utils.hub import cached_file

from contrastive_encoders import compat

PACKAGE = Path(compat.__file__).parent
PRIVATE = re.compile(r"_[A-Za-z]\w*")
OF_OTHERS = {  # private names of Python, OmegaConf, and Optuna, and of named tuples
    *("_exit", "_replace", "_asdict", "_fields", "_is_text_encoding", "_get_flag", "_is_none", "_get_node"),
    "_metadata",
}
LIBRARIES = ("torch", "transformers", "pytorch_lightning", "lightning_fabric", "peft", "sentence_transformers")


def sources():
    """Yield each file of the package except compat.py once, by its real path."""
    homes = [PACKAGE, *(path for path in PACKAGE.iterdir() if path.is_dir())]
    found = {path.resolve() for home in homes for path in home.resolve().rglob("*.py")}
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in found - {Path(compat.__file__).resolve()}}


def test_no_other_module_uses_a_private_name_of_a_library():
    trees, own, used = sources(), set[str](), dict[str, list[str]]()
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                own.add(node.target.id)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
            elif isinstance(node, ast.Attribute):
                holder = node.value
                is_self = isinstance(holder, ast.Name) and holder.id in ("self", "cls")
                is_super = isinstance(holder, ast.Call) and ast.unparse(holder.func) == "super"
                if is_self and isinstance(node.ctx, ast.Store):
                    own.add(node.attr)
                elif not is_self and not is_super and PRIVATE.fullmatch(node.attr):
                    used.setdefault(node.attr, []).append(f"{path.name}:{node.lineno}")
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
                name = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
                if PRIVATE.fullmatch(name):
                    used.setdefault(name, []).append(f"{path.name}:{node.lineno}")
            elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in LIBRARIES:
                for name in (*node.module.split("."), *(alias.name for alias in node.names)):
                    if PRIVATE.fullmatch(name):
                        used.setdefault(name, []).append(f"{path.name}:{node.lineno}")
    assert len(trees) > 300
    assert {name: places for name, places in used.items() if name not in own | OF_OTHERS} == {}


def public(owner):
    return {name for name in dir(owner) if not name.startswith("_")}


def has_no(owner, *parts):
    """Return whether no public name of an owner contains one of these parts."""
    return not [name for name in public(owner) if any(part in name.lower() for part in parts)]


def varlen_attention_has_no_dropout():
    module = pytest.importorskip("torch.nn.attention.varlen")
    return not [name for name in inspect.signature(module.varlen_attn).parameters if "dropout" in name]


def adafactor_asks_the_device():
    group = {"lr": 1.0, "relative_step": False, "scale_parameter": True, "eps": (1e-30, 1e-3)}
    with pytest.raises(RuntimeError):
        Adafactor._get_lr(group, {"RMS": torch.empty((), device="meta")})
    return True


def a_missing_file_is_an_os_error(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(OSError, match=r"other\.json") as error:
        cached_file(str(tmp_path), "other.json")
    return type(error.value) is OSError


def to_empty_forgets_every_tensor():
    module = nn.Linear(2, 2)
    return all(weight.is_meta for weight in module.to_empty(device="meta").parameters())


def fused_optimizers_unscale_by_themselves():
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(2))], fused=True)
    return optimizer._step_supports_amp_scaling and has_no(torch.optim.AdamW, "scal")


NEEDED = {  # function -> whether there is still no public way
    "raw_parameters": lambda: not isinstance(nn.Linear(1, 1).named_parameters(), dict),
    "version_of": lambda: has_no(torch.Tensor, "version"),
    "multiplies_bf16": lambda: has_no(torch.cpu, "bf16", "amx"),
    "clips_before_step": fused_optimizers_unscale_by_themselves,
    "flash_attention": varlen_attention_has_no_dropout,
    "efficient_attention": varlen_attention_has_no_dropout,
    "onednn_product": lambda: has_no(torch.backends.mkldnn, "linear"),
    "onednn_weight": lambda: has_no(torch.backends.mkldnn, "linear"),
    "local_slices": lambda: has_no(torch.distributed.tensor, "offset"),
    "make_root": lambda: has_no(FSDPModule, "root", "init"),
    "materialize": to_empty_forgets_every_tensor,
    "set_up_compiler": lambda: not hasattr(getattr(torch.compiler, "config", None), "optimize_ddp"),
    "call_around_compilations": lambda: has_no(torch.compiler, "callback"),
    "compiled_graphs": lambda: has_no(torch.compiler, "counter", "metrics"),
    "commit_of": lambda: has_no(PreTrainedConfig, "commit", "revision"),
    "find_file": a_missing_file_is_an_os_error,
    "attention_implementation": lambda: "attn_implementation" not in public(PreTrainedModel),
    "attention_replaced": lambda: "attn_implementation" not in public(PreTrainedModel),
    "takes_any_attention": lambda: has_no(PreTrainedModel, "supports_flash"),
    "is_stateful": lambda: has_no(PreTrainedModel, "stateful"),
    "scaled_adafactor": adafactor_asks_the_device,
}


@pytest.mark.parametrize("name", [name for name, _ in inspect.getmembers(compat, inspect.isfunction)])
def test_there_is_still_no_public_way(name, tmp_path):
    if not name.startswith("_") and inspect.getmodule(getattr(compat, name)) is compat:
        needed = NEEDED[name]
        assert needed(tmp_path) if inspect.signature(needed).parameters else needed(), f"{name} has become unnecessary"
