"""Runs a program of WebAssembly: `python tests/run_wasm.py PROGRAM ARGUMENTS < input > output`.

It sees the files of the current folder.
"""

import sys

import wasmtime


def main(program: str, *arguments: str) -> None:
    """Runs a program with what this process has as standard streams."""
    engine = wasmtime.Engine()
    store, linker = wasmtime.Store(engine), wasmtime.Linker(engine)
    system = wasmtime.WasiConfig()
    system.argv = [program, *arguments]
    system.inherit_stdin()
    system.inherit_stdout()
    system.inherit_stderr()
    system.preopen_dir(".", ".")
    store.set_wasi(system)
    linker.define_wasi()
    instance = linker.instantiate(store, wasmtime.Module.from_file(engine, program))
    try:
        instance.exports(store)["_start"](store)
    except wasmtime.ExitTrap as end:
        sys.exit(end.code)


if __name__ == "__main__":
    main(*sys.argv[1:])
