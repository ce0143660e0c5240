"""Commands that parse options and report errors as Kaldi's tools do, on top of click."""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import click
import nnet3_tables
from nnet3_descriptors import Nnet3Error, escaped

from nnet3_tools import __version__
from nnet3_tools.entry_points import INTERRUPTED
from nnet3_tools.ignored_options import OF_ALL_TOOLS
from nnet3_tools.interruptions import heard

_GIVEN = "nnet3_tools.arguments"
"""The key under which the context of click has the original arguments."""

NOTHING_DONE, FATAL = 1, 255
"""Kaldi's exit statuses; see `_status_after`."""


class NothingDoneError(click.ClickException):
    """A tool went through all its input, and none of it succeeded."""


class ArgumentCountError(click.UsageError):
    """There are too few or too many arguments."""


class KaldiCommand(click.Command):
    """A command with options `--name=value`; names may have `_` in place of `-`.

    A boolean option without a value is true; `--config=FILE` reads options from a file, one on each
    line, and options on the command line override them. `--version` is that of nnet3-tools.

    Args:
        ignored: Options that are accepted without effect, unless the command has them, and what
            each is about.
    """

    def __init__(
        self, *args: Any, ignored: Mapping[str, str] | None = None, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        declared = {option for parameter in self.params for option in parameter.opts}
        everywhere = {**OF_ALL_TOOLS, **(ignored or {})}
        self.ignored = {name: about for name, about in everywhere.items() if name not in declared}
        for parameter in self.params:
            # Like Kaldi's tools, counts the arguments before it looks for options.
            parameter.is_eager = parameter.is_eager or isinstance(parameter, click.Argument)
        click.version_option(__version__, message="%(prog)s (nnet3-tools) %(version)s")(self)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options that are accepted without effect, and the epilog."""
        with formatter.section("Kaldi's options that change nothing here"):
            longest = max(map(len, self.ignored), default=0)
            formatter.write_dl(sorted(self.ignored.items()), col_max=longest)
        super().format_epilog(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the arguments into the form that click expects, and parses them."""
        ctx.meta[_GIVEN] = list(args)
        normalized = self._normalized(self._with_configs(args))
        try:
            return super().parse_args(ctx, normalized)
        except click.UsageError as error:
            is_of_argument = isinstance(error, click.MissingParameter) and isinstance(
                error.param, click.Argument
            )
            if not is_of_argument and type(error) is not click.UsageError:
                raise
            raise ArgumentCountError(error.format_message(), ctx) from error

    def _with_configs(self, args: list[str]) -> list[str]:
        """The arguments with those of config files in front, so that later ones win."""
        from_files: list[str] = []
        given = []
        for arg in args:
            if arg.startswith("--config="):
                from_files += _read_config(arg.removeprefix("--config="))
            else:
                given.append(arg)
        return [*from_files, *given]

    def _normalized(self, args: list[str]) -> list[str]:
        booleans = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and parameter.type is click.BOOL
            for name in parameter.opts
            if not parameter.is_flag
        }
        result: list[str] = []
        for position, arg in enumerate(args):
            if arg == "--":
                return [*result, *args[position:]]
            if arg.startswith("--"):
                name, equals, value = arg.partition("=")
                name = name.replace("_", "-")
                if name in self.ignored:
                    continue
                if not equals and name in booleans:
                    equals, value = "=", "true"
                arg = f"{name}{equals}{value}"
            result.append(arg)
        return result


def _read_config(path: str) -> list[str]:
    """The options of a file: one on each line, whose value ends with the line or at a "#".

    All text that becomes an option of a tool, and does not stand on its command line, comes from
    here. So no file can name a command, for whatever option: who runs the tool has to do that.

    Raises:
        click.UsageError: it cannot be read, or has something else, or a command.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.UsageError(f"cannot read config file '{path}': {reason}") from error
    for number, line in enumerate(lines, 1):
        if line and not (line.startswith("--") and line.strip("-")):
            raise click.UsageError(
                f"{path}, line {number}: expected an option, --name=value, found {line[:60]!r}"
            )
        name, _, value = line.partition("=")
        if any(map(nnet3_tables.is_command, (line, value, value.partition(":")[2]))):
            raise click.UsageError(
                f"{path}, line {number}: the value of {name} is a command ({value[:60]!r}), and "
                "files do not run commands; give it on the command line instead"
            )
    return [line for line in lines if line]


def boolean_option(name: str, default: bool = False, **attributes: Any) -> Callable[[Any], Any]:
    """An option `--name=true|false`; `--name` alone is true."""
    return click.option(name, type=click.BOOL, metavar="BOOL", default=default, **attributes)


GPU_CHOICES = ("yes", "no", "optional", "wait")


def gpu_option() -> Callable[[Any], Any]:
    """The option `--use-gpu`, with Kaldi's choices; the command gets it as `use_gpu`."""
    return click.option(
        "--use-gpu",
        default="no",
        show_default=True,
        type=click.Choice(GPU_CHOICES),
        help="Whether to run on a CUDA device.",
    )


def chosen_device(use_gpu: str) -> str:
    """The device of a tool that does not search for a GPU; "optional" means the processor."""
    return "cuda" if use_gpu in ("yes", "wait") else "cpu"


PRINT_ARGS = boolean_option(
    "--print-args",
    default=True,
    show_default=True,
    help="Write the command line to standard error first.",
)


def print_arguments(tool: str) -> None:
    """Writes the command line of the tool that runs to standard error, as Kaldi's tools do."""
    arguments = click.get_current_context().meta[_GIVEN]
    say(f"{shlex.join([tool, *arguments])}\n")


def say(text: str) -> None:
    """Writes lines to standard error; all messages of the tools go through here.

    They name keys and nodes from files that anybody may have written. So characters that a terminal
    would obey are escaped.
    """
    click.echo(escaped(text), err=True)  # noqa: TID251  (here they are escaped)


def log(tool: str, message: str) -> None:
    """Writes a log line to standard error, as Kaldi's tools do."""
    say(f"LOG ({tool}) {message}")


def warn(tool: str, message: str) -> None:
    """Writes a warning to standard error, as Kaldi's tools do."""
    say(f"WARNING ({tool}) {message}")


@contextlib.contextmanager
def logged(tool: str, logger: str) -> Iterator[None]:
    """A context in which what a logger of Python's logging gets is a log line of the tool.

    Args:
        tool: Its name.
        logger: The name of the logger, such as "nnet3_descriptors.editing"; those below it count.
    """
    import logging  # takes a while; most tools log nothing in this way

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            level = "LOG" if record.levelno <= logging.INFO else record.levelname
            say(f"{level} ({tool}) {record.getMessage()}")

    source, lines = logging.getLogger(logger), Lines()
    usual = source.level, source.propagate
    source.setLevel(logging.INFO)
    source.propagate = False
    source.addHandler(lines)
    try:
        yield
    finally:
        source.removeHandler(lines)
        source.setLevel(usual[0])
        source.propagate = usual[1]


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks, and without the marks below an excerpt."""
    message = str(error)
    if isinstance(error, OSError) and not isinstance(error, Nnet3Error) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    lines = [line.strip() for line in message.splitlines()]
    text = "; ".join(line for line in lines if line.strip("^")).replace(":; ", ": ")
    return text or type(error).__name__


@contextlib.contextmanager
def _warnings_as_lines(tool: str) -> Iterator[None]:
    """A context in which a Python warning is a log line, without its place in the source."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        warn(tool, str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _status_after(error: Exception) -> int:
    """The exit status of a tool that an error ends, as in Kaldi.

    Kaldi's tools return 1 if nothing succeeded, or if the number of arguments is wrong, and -1,
    which is 255, after any exception. If some of the input failed, and some succeeded, they
    return 0.
    """
    return NOTHING_DONE if isinstance(error, NothingDoneError | ArgumentCountError) else FATAL


def run_tool(command: click.Command, name: str) -> NoReturn:
    """Runs a command as a program: a failure is one line on standard error, and an exit status."""
    try:
        with heard(), _warnings_as_lines(name):
            status = command.main(prog_name=name, standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        status = INTERRUPTED
    except Exception as error:
        status = _status_after(error)
        if isinstance(error, click.UsageError):
            shown = io.StringIO()
            error.show(shown)  # with the usage line, as Kaldi's tools do
            say(shown.getvalue().removesuffix("\n"))
        else:
            known = isinstance(error, click.ClickException | Nnet3Error | OSError | MemoryError)
            what = "" if known else f"internal error: {type(error).__name__}: "
            say(f"{name}: {what}{one_line(error)}")
    if status == INTERRUPTED:
        # Here the exception is released, and with it contexts that may have replaced standard
        # error.
        say(f"{name}: interrupted")
    sys.exit(status or 0)
