"""Pages for a browser as files: what a page may take the place of."""

from __future__ import annotations

import os

import click
import nnet3_tables

_BEGINNING = b"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>"""
"""How pages of nnet3-report begin."""


def is_stream(name: str) -> bool:
    """Whether a name stands for standard output or a command, as in Kaldi."""
    return name in ("", "-") or nnet3_tables.is_command(name)


def check(path: str) -> None:
    """Raises an error if a page cannot be written, or would replace what is no page.

    Raises:
        click.ClickException: the file is another one, or a folder, or the folder for it is missing.
        OSError: the file cannot be read and written.
    """
    from nnet3_descriptors.files import file_to_replace  # not for --help

    if is_stream(path):
        raise click.ClickException(f"expected the name of a file for the page, got '{path}'")
    if path.endswith(os.sep) or os.path.isdir(path):
        raise click.ClickException(f"{path}: expected a file for the page, found a folder's name")
    target = file_to_replace(path)
    if target is None:  # a terminal, a pipe
        return
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise click.ClickException(f"{path}: there is no folder '{folder}' for the page")
    if not os.access(folder, os.W_OK):
        raise click.ClickException(f"{path}: the folder '{folder}' cannot be written to")
    if os.path.exists(target):
        with open(target, "r+b") as file:  # to write, too: who may not do that hears so now
            found = file.read(len(_BEGINNING))
        if found not in (b"", _BEGINNING):
            raise click.ClickException(
                f"{path}: expected a page to replace, or no file, found another file; remove it, "
                "or give another name"
            )
