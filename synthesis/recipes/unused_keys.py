"""Keys that a recipe of GenSE has no use for: said and not used, they would be believed to work."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import yaml

from command.config_files import CONFIGS
from contracts import InputError

DEFAULTS = CONFIGS / "synthesis.yaml"
RECIPES = DEFAULTS.parent / "recipe"
OF_DINO = (
    "spec",
    "num_x1",
    "strategy",
    "per_label",
    "max_tries",
    "decay",
    "epsilon",
    "ban_eos",
    "chat_template",
    "filters",
)
OF_WRITING = ("max_new_tokens", "top_p", "top_k", "temperature", "seed", "rows", "token_budget")
OF_SENTENCES = ("input_type", "input_column")
OF_A_MODEL = ("revision", "precision", "device", "devices", "shard_size")
UNUSED: Mapping[str, tuple[str, ...]] = {
    "gense": OF_DINO,
    "gense_retrieval": OF_DINO + OF_WRITING,
    "gense_back_translation": OF_DINO + OF_WRITING,
    "gense_dino": OF_DINO + OF_WRITING + OF_SENTENCES,
    "gense_filter": OF_DINO + OF_WRITING + OF_SENTENCES + OF_A_MODEL,
}


def refuse_unused(cfg: Mapping[str, Any], recipe: str) -> None:
    """InputError for a value that nothing reads; the default, said once more, does no harm."""
    defaults = yaml.safe_load(DEFAULTS.read_text(encoding="utf-8"))
    of_recipe, of_all = (  # the latter: what each begins with
        yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8")) for name in (recipe, "gense_filter")
    )
    refuse_unknown(map(str, cfg), {*defaults, *of_recipe, *of_all, "prompts"}, "")
    for key in UNUSED[recipe]:
        default, value = defaults[key], cfg[key]
        pairs = [(key, default, value)]
        if isinstance(default, dict):
            pairs = [(f"{key}.{name}", default[name], value[name]) for name in default]
        for name, wanted, given in pairs:
            if given != wanted:
                what = "a key of DINO's recipes" if key in OF_DINO else "for recipes that write or read otherwise"
                raise InputError(f"{name}={given}: recipe={recipe} has no use for it, it is {what}. Leave it out.")


Kind = TypeVar("Kind")


def settings(kind: type[Kind], given: Mapping[Any, Any], group: str) -> Kind:
    """A named tuple from a group of keys; InputError for one that it has not, as +GROUP.KEY=... can bring."""
    refuse_unknown(map(str, given), kind._fields, f"{group}.")  # type: ignore[attr-defined]
    return kind(**given)


def refuse_unknown(given: Iterable[str], known: Iterable[str], prefix: str) -> None:
    known = sorted(known)
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            all_ = f"There are {', '.join(known)}." if prefix else "python -m synthesis --help lists them."
            hint = f"The nearest is {prefix}{near[0]}." if near else all_
            raise InputError(f"{prefix}{key}: there is no such key. {hint}")
