"""`python -m tinymodels COMMAND ...`: one module a command, imported only when it is asked for."""

import sys
from importlib import import_module

COMMANDS = {
    "bytes": (
        "tinymodels.bytes_command",
        "what a model's memory costs, from its name or config.json",
    ),
    "bench": (
        "tinymodels.bench",
        "speed beside transformers, on the same weights",
    ),
}


def main(arguments: list[str]) -> int:
    """Runs a command; 0 done, 1 a check failed, 2 usage or environment."""
    if arguments and arguments[0] in COMMANDS:
        module, _ = COMMANDS[arguments[0]]
        return import_module(module).main(arguments[1:])
    if arguments and arguments[0] in ("-h", "--help"):
        print("python -m tinymodels COMMAND ... (COMMAND --help says more)\n")
        for name, (_, purpose) in COMMANDS.items():
            print(f"    {name:8}{purpose}")
        return 0
    asked = f"{arguments[0]!r} is no command" if arguments else "a command is missing"
    print(f"tinymodels: {asked}; the commands are {', '.join(COMMANDS)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has had enough: `... | head`
        sys.stdout = None
        code = 0
    sys.exit(code)
