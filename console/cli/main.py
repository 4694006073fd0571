"""`sunfleet`: the command line. Commands are loaded when they are called, so that help is quick.

Exit codes: 0 fine, 1 broken promise, 2 bad input, 3 at risk or conflict, 4 unreachable.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from sunfleet.errors import BadInput, NotFound, Permanent, Refused, SunfleetError

COMMANDS = {
    "apply": "fleets",
    "rollback": "fleets",
    "schema": "fleets",
    "status": "views",
    "routes": "views",
    "verify": "views",
    "why": "views",
    "plan": "plans",
    "prewarm": "deployments",
    "pin": "deployments",
    "unpin": "deployments",
    "unload": "deployments",
    "pause": "deployments",
    "resume": "deployments",
    "take-back": "nodes",
    "up": "processes",
    "worker": "processes",
    "demo": "processes",
    "version": "processes",
}
INTERRUPTED = 130


class Commands(click.Group):
    """Commands by the module that has them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (module := COMMANDS.get(cmd_name)) is None:
            return None
        found = getattr(importlib.import_module(f"console.cli.{module}"), cmd_name.replace("-", "_"))
        if not isinstance(found, click.Command):
            raise TypeError(f"{cmd_name} is no command")
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def sunfleet() -> None:
    """Keep the right models warm on the right GPUs as the working day moves around the world.

    Exit codes: 0 fine, 1 broken promise, 2 bad input, 3 at risk or conflict, 4 unreachable.
    """


def code_of(error: SunfleetError) -> int:
    """The exit code that an error means."""
    if isinstance(error, BadInput | NotFound):
        return 2
    if isinstance(error, Refused):
        return 3
    return 1 if isinstance(error, Permanent) and error.code != "AccessDenied" else 4


def run(arguments: Sequence[str] | None = None) -> int:
    """One command; its exit code. Errors are said on stderr, with a hint."""
    try:
        result = sunfleet.main(list(arguments) if arguments is not None else None, standalone_mode=False)
    except SunfleetError as error:
        click.echo(f"error: {error.message}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        return code_of(error)
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    return result if isinstance(result, int) else 0


def main() -> NoReturn:
    """The script. The interpreter's own exit is not waited for: the SDK's threads abort it now and then."""
    logging.basicConfig(level=os.environ.get("SUNFLEET_LOG", "WARNING").upper(), stream=sys.stderr)
    code = run()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            code = code or 0
    os._exit(code)


if __name__ == "__main__":
    main()
