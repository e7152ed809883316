"""From a command line to an exit code. Whatever goes wrong becomes one line on standard error, never a traceback.

0    done                       130  interrupted
1    doctor found a fault, or a question was answered with no
2    bad use or bad input       141  the reader of the output went away
3    a fault of retcon itself
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from retcon.cli.show import clean
from retcon.errors import RetconError

BAD_USE, FAULT, INTERRUPTED, CLOSED = 2, 3, 130, 141
_Complaint = typer.BadParameter.__mro__[2]  # what every complaint of the parser derives from


class _ClosedError(Exception):
    """The reader of standard output went away."""


class Group(TyperGroup):
    """The verbs, run so that every error ends in one line and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        run = partial(super().main, given, "retcon", complete_var, False, windows_expand_args, **extra)
        sys.exit(run_guarded(run, as_json="--json" in given[: given.index("--") if "--" in given else None]))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the parser would make a plain 1 of these two
            raise _ClosedError from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def run_guarded(run: Callable[[], Any], *, as_json: bool) -> int:
    """The exit code of the run; an error is told in one line, or with `as_json` as one document, on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="backslashreplace"
            )  # an ASCII terminal, or half a surrogate pair, is no reason to fail
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (_ClosedError, BrokenPipeError):
        _silence(sys.stdout)
        return CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort:
        return _fail("stopped", "nothing was done", as_json=as_json, exit_code=1)
    except RetconError as error:
        return _fail(error.code, str(error), as_json=as_json)
    except OSError as error:
        _silence(sys.stdout)
        return _fail("system", f"{error.filename or 'output'}: {error.strerror or error}", as_json=as_json)
    except Exception as error:
        if isinstance(error, _Complaint):
            return _fail("usage", _explain_usage(error), as_json=as_json)
        if sys.flags.dev_mode:  # python -X dev -m retcon ... shows where it comes from
            raise
        told = f"a fault of retcon itself: {type(error).__name__}: {error}"
        return _fail("fault", told, as_json=as_json, exit_code=FAULT)


def _explain_usage(error: Any) -> str:
    if getattr(error, "option_name", None) in ("--api-key", "--key"):
        return f"no {error.option_name}: others see a command line; a key is read from RETCON_API_KEY or OPENAI_API_KEY"
    where = getattr(getattr(error, "ctx", None), "command_path", "retcon")
    dash = "a text that starts with a dash goes after --, or " if type(error).__name__ == "NoSuchOption" else ""
    return f"{error.format_message().rstrip('. ')}; {dash}try '{where} --help'"


def _fail(code: str, message: str, *, as_json: bool, exit_code: int = BAD_USE) -> int:
    line = " ".join(clean(message).split())
    print(json.dumps({"error": {"code": code, "message": line}}) if as_json else f"retcon: {line}", file=sys.stderr)
    return exit_code


def _silence(stream: TextIO) -> None:
    """Send what is still buffered nowhere: the interpreter would try once more at exit, and complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
