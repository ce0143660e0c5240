"""Tools as programs: they parse options and report errors as Kaldi's do, on top of click."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import math
import os
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import click
import nnet3_tables
from nnet3_descriptors import Nnet3Error, escaped

from nnet3_tools import __version__, entry_points

Parameter = Callable[[Any], Any]
"""What click.argument and click.option return: it adds an argument or an option."""

_GIVEN = "nnet3_tools.arguments"
"""The key under which the context of click has the original arguments."""

NOTHING_DONE, FATAL = 1, 255
"""Kaldi's exit statuses; see `_status_after`."""

_IGNORED_BY_ALL = {"--verbose": "messages", "--print-args": "messages"}


class NothingDoneError(click.ClickException):
    """A tool went through all its input, and none of it succeeded."""


class ArgumentCountError(click.UsageError):
    """There are too few or too many arguments."""


class KaldiCommand(click.Command):
    """A command with options `--name=value`; names may have `_` in place of `-`.

    A boolean option without a value is true; `--config=FILE` reads options from a file, one on each
    line, and options on the command line override them. `--version` is that of nnet3-tools.

    Args:
        declared: The arguments and options.
        ignored: Options that are accepted without effect, unless the command has them, and what
            each is about.
    """

    def __init__(
        self,
        *args: Any,
        declared: Sequence[Parameter] = (),
        ignored: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self._declared, self._ignored = declared, ignored or {}
        del self.params

    @functools.cached_property
    def params(self) -> list[click.Parameter]:  # type: ignore[override]
        """Arguments and options, made at the first use: of a module's tools one runs."""
        holder = click.Command(self.name)
        version = click.version_option(__version__, message="%(prog)s (nnet3-tools) %(version)s")
        for add in (*self._declared, version):
            add(holder)
        for parameter in holder.params:
            # Like Kaldi's tools, counts the arguments before it looks for options.
            parameter.is_eager = parameter.is_eager or isinstance(parameter, click.Argument)
        return holder.params

    @functools.cached_property
    def ignored(self) -> dict[str, str]:
        """The options that are accepted without effect, and what each is about."""
        declared = {option for parameter in self.params for option in parameter.opts}
        everywhere = {**_IGNORED_BY_ALL, **self._ignored}
        return {name: about for name, about in everywhere.items() if name not in declared}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options that are accepted without effect, and the epilog."""
        with formatter.section("Kaldi's options that change nothing here"):
            longest = max(map(len, self.ignored), default=0)
            formatter.write_dl(sorted(self.ignored.items()), col_max=longest)
        super().format_epilog(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the arguments into the form that click expects, and parses them."""
        ctx.meta[_GIVEN] = list(args)
        normalized = self._normalized(_with_configs(args))
        try:
            rest = super().parse_args(ctx, normalized)
        except click.UsageError as error:
            is_of_argument = isinstance(error, click.MissingParameter) and isinstance(
                error.param, click.Argument
            )
            if not is_of_argument and type(error) is not click.UsageError:
                raise
            raise ArgumentCountError(error.format_message(), ctx) from error
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            if isinstance(value, float) and not math.isfinite(value):
                raise click.BadParameter(f"expected a finite number, found {value}", ctx, parameter)
        return rest

    def invoke(self, ctx: click.Context) -> object:
        """Runs the tool; what overflows or is undefined is infinite or NaN without a warning."""
        import numpy as np  # which help does without

        from nnet3_tools.overwriting import guarded

        configs = [
            given.removeprefix("--config=")
            for given in ctx.meta[_GIVEN]
            if given.startswith("--config=")
        ]
        usage = " ".join(self.collect_usage_pieces(ctx))
        folder = ctx.params["folder"] if usage.endswith(" DIR") else ""
        with np.errstate(all="ignore"), guarded(configs, self._changed(ctx, usage), folder):
            return super().invoke(ctx)

    def _changed(self, ctx: click.Context, usage: str) -> Iterator[str]:
        """The files NAME-IN of a tool that writes NAME-OUT: they may be the same."""
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            values = value if isinstance(value, tuple) else (value,)
            # The first word, such as [NNET-IN] or NNET-IN..., may stand for none of them or many.
            first, *words = (parameter.metavar or "").split() or [""]
            labels = itertools.chain(reversed(words), itertools.repeat(first))
            for word, name in zip(labels, reversed(values), strict=False):
                label = word.strip("[].")
                if label.endswith("-IN") and f"{label.removesuffix('IN')}OUT" in usage:
                    yield name

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
                if name in booleans and not value:
                    if equals:
                        raise click.UsageError(f"{arg}: expected true or false behind the '='")
                    equals, value = "=", "true"
                arg = f"{name}{equals}{value}"
            result.append(arg)
        return result

    def named(self, name: str) -> KaldiCommand:
        """Another tool that runs the same function."""
        return KaldiCommand(
            name,
            callback=self.callback,
            help=self.help,
            declared=self._declared,
            ignored=self._ignored,
        )

    def run(self) -> NoReturn:
        """Runs as a program: a failure is one line on standard error, and an exit status."""
        name = self.name or ""
        try:
            with heard(), _warnings_as_lines(name):
                status = self.main(prog_name=name, standalone_mode=False)
        except (KeyboardInterrupt, click.Abort):
            status = entry_points.INTERRUPTED
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
        if status == entry_points.INTERRUPTED:
            # Here the exception is released, and with it contexts that may have replaced standard
            # error.
            say(f"{name}: interrupted")
        sys.exit(status or 0)


def tool(
    name: str, arguments: str = "", *declared: Parameter, **attributes: Any
) -> Callable[[Callable[..., int | None]], KaldiCommand]:
    """Makes a tool of a function, which gets arguments and options under its parameters' names.

    Args:
        name: The name of the tool.
        arguments: Its arguments as the usage line shows them, "MODEL-IN EGS-WSPECIFIER...", for the
            first parameters of the function; "[NAME]" may be left out, and then is "".
        declared: Options, and arguments of other kinds.
        attributes: Those of a `KaldiCommand`.
    """

    def made(function: Callable[..., int | None]) -> KaldiCommand:
        named = map(_argument, function.__code__.co_varnames, arguments.split())
        every = (*named, *declared)
        return click.command(name, cls=KaldiCommand, declared=every, **attributes)(function)

    return made


def _argument(name: str, shown: str) -> Parameter:
    if shown.endswith("..."):
        return click.argument(name, metavar=shown, nargs=-1, required=True)
    if shown.startswith("["):
        return click.argument(name, metavar=shown, default="")
    return click.argument(name, metavar=shown)


def option(
    names: str,
    default: Any,
    text: str,
    metavar: str | None = None,
    *,
    least: float | None = None,
    shown: bool = False,
    **attributes: Any,
) -> Parameter:
    """An option `--name=value`, of the type of its default; text, if that is None.

    Args:
        names: "--name", or "--name parameter" where the function calls it otherwise.
        default: The value if it is not given.
        text: What `--help` says of it.
        metavar: The name of the value in `--help`.
        least: The least value.
        shown: `--help` gives the default.
        attributes: Other arguments of click.option.
    """
    if default is not None:
        attributes["default"] = default
    if least is not None:
        in_range: Any = click.IntRange if isinstance(default, int) else click.FloatRange
        attributes["type"] = in_range(min=least)
    if shown:
        attributes["show_default"] = True
    return click.option(*names.split(), help=text, metavar=metavar, **attributes)


def boolean_option(
    name: str, text: str, *, default: bool = False, shown: bool = False
) -> Parameter:
    """An option `--name=true|false`; `--name` alone is true."""
    return option(name, default, text, "BOOL", shown=shown, type=click.BOOL)


def _with_configs(args: list[str]) -> list[str]:
    """The arguments with those of config files in front, so that later ones win."""
    from_files: list[str] = []
    given = []
    for arg in args:
        if arg.startswith("--config="):
            from_files += _read_config(arg.removeprefix("--config="))
        else:
            given.append(arg)
    return [*from_files, *given]


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


def print_arguments() -> None:
    """Writes the command line of the tool that runs to standard error, as Kaldi's tools do."""
    arguments = click.get_current_context().meta[_GIVEN]
    say(f"{shlex.join([running(), *arguments])}\n")


def running() -> str:
    """The name of the tool that runs."""
    return click.get_current_context().command.name or ""


def say(text: str) -> None:
    """Writes lines to standard error; all messages of the tools go through here.

    They name keys and nodes from files that anybody may have written. So characters that a terminal
    would obey are escaped. That they cannot be written, as to a full disk, does not end the work.
    """
    with contextlib.suppress(OSError):
        click.echo(escaped(text), err=True)  # noqa: TID251  (here they are escaped)


def log(message: str, place: str = "") -> None:
    """Writes a log line to standard error, as Kaldi's tools do.

    Args:
        message: The line.
        place: What stands before it in parentheses, if it is not the tool that runs.
    """
    say(f"LOG ({place or running()}) {message}")


def warn(message: str) -> None:
    """Writes a warning to standard error, as Kaldi's tools do."""
    say(f"WARNING ({running()}) {message}")


@contextlib.contextmanager
def logged(logger: str) -> Iterator[None]:
    """A context in which what a logger of Python's logging gets is a log line of the tool.

    Args:
        logger: The name of the logger, such as "nnet3_descriptors.editing"; those below it count.
    """
    import logging  # takes a while; most tools log nothing in this way

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            level = "LOG" if record.levelno <= logging.INFO else record.levelname
            say(f"{level} ({tool}) {record.getMessage()}")

    tool, source, lines = running(), logging.getLogger(logger), Lines()
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
        say(f"WARNING ({tool}) {message}")

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


_PAUSE = 0.02
"""Seconds between two interruptions of the main thread."""

_END = b"\0"
"""The message that ends the other thread; no signal has this number."""


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """A context in which Ctrl-C raises KeyboardInterrupt soon, whatever the main thread waits for.

    Python handles a signal between two instructions, or when it interrupts a system call. A signal
    after the last instruction before a call interrupts nothing, and is handled only when the call
    ends: never, if nobody writes to the pipe that the call reads. The gap is a microsecond long,
    but on a busy machine a process may have to wait just there. So another thread, which Python
    tells of each signal at once, interrupts the main thread again and again.

    It changes nothing if Ctrl-C does something else (such as nothing, in the background), outside
    of the main thread, and on systems without signals to threads.
    """
    if (
        sys.platform == "win32"
        or not hasattr(signal, "pthread_kill")
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    news, sink = os.pipe()
    os.set_blocking(sink, False)  # signal.set_wakeup_fd requires it
    waiting = threading.get_ident()
    thread = threading.Thread(
        target=_interrupt,
        args=(lambda: signal.pthread_kill(waiting, signal.SIGURG), news),
        name="interruptions",
        daemon=True,
    )
    # SIGURG usually does nothing. With a handler it makes a system call return, and then Python
    # handles all signals.
    usual = signal.signal(signal.SIGURG, lambda *_: None)
    usual_sink = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(usual_sink)
        os.write(sink, _END)
        thread.join()
        signal.signal(signal.SIGURG, usual)
        os.close(news)
        os.close(sink)


def _interrupt(interrupt: Callable[[], None], news: int) -> None:
    """Interrupts a thread from the first Ctrl-C on until the end.

    Args:
        interrupt: Interrupts it once.
        news: A pipe with the numbers of signals, each a byte.
    """
    is_needed = False
    while _END not in (numbers := os.read(news, 4096)):
        is_needed = is_needed or signal.SIGINT in numbers
        if is_needed:
            time.sleep(_PAUSE)
            interrupt()  # writes to `news`, so the loop goes on
