"""Shell completion of commands, config groups, choices of groups, and keys.

    contrastive-encoders completion bash

prints a script that the shell reads when it starts. SHELL is bash, zsh, or fish. The line for each:
"""

import importlib
import re
import shlex
import sys
from collections.abc import Sequence

from contrastive_encoders.core.errors import InputError
from contrastive_encoders.training.composition.config_files import CONFIGS, choices

CANDIDATES = "candidates"  # argument of the scripts, followed by the command line up to the cursor
BASH = """# In ~/.bashrc: eval "$(contrastive-encoders completion bash)"
_contrastive_encoders() {
    local line=${COMP_LINE:0:COMP_POINT}
    local word=${line##* } IFS=$'\\n'
    COMPREPLY=($(contrastive-encoders completion candidates "$line" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} == 0 ]]; then return; fi  # bash completes files
    if [[ $word == *=* && $COMP_WORDBREAKS == *=* ]]; then  # bash completes what is after the sign
        COMPREPLY=("${COMPREPLY[@]#"${word%%=*}="}")
    fi
    if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o default -F _contrastive_encoders contrastive-encoders
"""
ZSH = """# In ~/.zshrc, after compinit: eval "$(contrastive-encoders completion zsh)"
_contrastive_encoders() {
    local -a found
    found=(${(f)"$(contrastive-encoders completion candidates "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)"})
    if (( $#found )); then
        compadd -S '' -- ${(M)found:#*=}
        compadd -- ${found:#*=}
    else
        compset -P '*='
        _files
    fi
}
compdef _contrastive_encoders contrastive-encoders
"""
FISH = """# In ~/.config/fish/config.fish: contrastive-encoders completion fish | source
complete -c contrastive-encoders -a '(contrastive-encoders completion candidates (commandline -cp | string collect))'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
# for other commands, the config has the name of the command
CONFIG_OF = {"improve": "train", "adapt": "compare", "race": "compare"}


def candidates(line: str, commands: Sequence[str]) -> list[str]:
    """Return the sorted completions of the last argument of a command line: ``KEY=`` for a key, ``GROUP=NAME`` for a
    choice of a group.

    Args:
        line: the command line up to the cursor.
        commands: names of all commands.
    """
    if re.search(r"\\ [^ ]*$", line) or _has_open_quote(line):  # an argument with a space is a file
        return []
    *before, argument = line.split(" ")
    before = [one for one in before[1:] if one]
    if not before:
        return [name for name in sorted(commands) if name.startswith(argument)]
    command = before[0]
    if command == "completion":
        return [name for name in sorted(SCRIPTS) if name.startswith(argument)]
    config = CONFIG_OF.get(command, command)
    if command not in commands or not (CONFIGS / f"{config}.yaml").is_file():
        return []
    groups = _groups(config)
    group, equals, name = argument.partition("=")
    if equals:
        return [f"{group}={one}" for one in choices(group) if one.startswith(name)] if group in groups else []
    chosen = groups | {one: value for one, _, value in (other.partition("=") for other in before) if one in groups}
    keys = {*groups, *_keys(config, chosen)}
    if command == "adapt":
        keys = keys - {"output"} | {"output_dir"}
    return [f"{key}=" for key in sorted(keys) if key.startswith(argument)]


def _has_open_quote(line: str) -> bool:
    try:
        shlex.split(line)
    except ValueError:
        return True
    return False


def _groups(config: str) -> dict[str, str | None]:
    """Return the config groups of a command, each with its default choice."""
    import yaml

    entries = yaml.safe_load((CONFIGS / f"{config}.yaml").read_text(encoding="utf-8")).get("defaults", [])
    found = (next(iter(entry.items())) for entry in entries if isinstance(entry, dict))
    return {group: name for group, name in found if (CONFIGS / group).is_dir()}


def _keys(config: str, chosen: dict[str, str | None]) -> list[str]:
    from contrastive_encoders.cli.main import COMMANDS
    from contrastive_encoders.training.composition.key_docs import files_of_help

    importlib.import_module(f"contrastive_encoders.cli.{COMMANDS[config][0]}")  # registers the config class
    return [key.name for file in files_of_help(config, chosen) for key in file.all_keys()]


def main(arguments: Sequence[str], command: str = "completion") -> None:
    """Print the completion script of a shell, or the completions that this script requests."""
    from contrastive_encoders.cli.main import COMMANDS

    if len(arguments) == 2 and arguments[0] == CANDIDATES:
        sys.stdout.write("".join(f"{one}\n" for one in candidates(arguments[1], [*COMMANDS])))
    elif len(arguments) == 1 and arguments[0] in SCRIPTS:
        sys.stdout.write(SCRIPTS[arguments[0]])
    elif arguments and arguments[0] in ("-h", "--help"):
        sys.stdout.write(f"{__doc__}\n")
        sys.stdout.write("".join(f"  {script.splitlines()[0].removeprefix('# ')}\n" for script in SCRIPTS.values()))
    else:
        raise InputError(key="SHELL", value=" ".join(arguments), expected=f"one of {', '.join(SCRIPTS)}")
