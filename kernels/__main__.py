"""python -m kernels check | compile | bench | gpu. Exit code 0 done, 1 a check failed, 2 usage."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict

import kernels
from kernels import backend


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise ValueError(f"{message}; see python -m kernels --help")


def main(argv=None) -> int:
    command = ""
    try:
        options = _parser().parse_args(argv)
        command = f" {options.command}"
        return options.run(options)
    except (ValueError, backend.TritonUnavailable) as error:
        print(f"python -m kernels{command}: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m kernels", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check", help="every kernel against its twin")
    compiling = commands.add_parser("compile", help="compile for a GPU; none is needed")
    compiling.add_argument("--target", required=True, help="sm_80, sm_90, sm_100, sm_120, gfx942")
    timing = commands.add_parser("bench", help="speed against the card's limits; needs a GPU")
    everything = commands.add_parser("gpu", help="all that only a GPU can answer, in one go")
    everything.add_argument("names", nargs="*", metavar="STEP", help="check, presets, bench, tests")
    everything.set_defaults(run=_gpu)
    for command, run in ((checking, _check), (compiling, _compile), (timing, _bench)):
        command.add_argument("names", nargs="*", metavar="KERNEL", help="all, if none is named")
        command.add_argument("--json", action="store_true", help="print JSON instead of a table")
        command.set_defaults(run=run)
    return parser


def _names(options) -> list[str]:
    unknown = [name for name in options.names if name not in kernels.KERNELS]
    if unknown:
        raise ValueError(f"no kernel {unknown[0]!r}; there are: {', '.join(kernels.KERNELS)}")
    return options.names or list(kernels.KERNELS)


def _check(options) -> int:
    names = _names(options)
    if not backend.current().runs_triton:
        raise backend.TritonUnavailable(f"nothing to check here: {backend.current().reason}")
    from kernels import check, gates

    found = [check.check_shape(name, shape) for name in names
             for shape in gates.module(name).SMALL]
    problems = [one for one in found if one.problem]
    if options.json:
        print(json.dumps([{**asdict(one), "problem": one.problem} for one in found], indent=1))
    else:
        print(check.show(found))
        print(f"{len(found)} checked, backend {backend.current().name}: "
              f"{f'{len(problems)} failed' if problems else 'all equal'}")
    return 1 if problems else 0


def _compile(options) -> int:
    os.environ[backend.VARIABLE] = "offline"
    from kernels import compile as compiler

    if options.target not in compiler.TARGETS:
        raise ValueError(f"--target {options.target!r} is unknown; "
                         f"expected one of {', '.join(compiler.TARGETS)}")
    target = compiler.TARGETS[options.target]
    found = compiler.compile_kernels(target, _names(options))
    fits = all(one.fits for one in found)
    if options.json:
        print(json.dumps(compiler.as_json(target, found), indent=1))
    else:
        print(compiler.show(found))
        print(f"{len(found)} launches compiled for {target.name}: "
              f"{'all fit' if fits else 'some do not fit'}")
    return 0 if fits else 1


def _need_gpu(what: str) -> None:
    if backend.current().name != "cuda":
        raise backend.TritonUnavailable(
            f"{what} compiled kernels on a GPU, and there is none to use here "
            f"({backend.current().reason})")


def _bench(options) -> int:
    names = _names(options)
    _need_gpu("bench times")
    from kernels import bench

    card = bench.measure_card()
    found = bench.bench_kernels(names, card)
    path = bench.record(card, found)
    if options.json:
        print(path.read_text(), end="")
    else:
        print(bench.show(card, found))
        print(f"written to {path}")
    return 0


def _gpu(options) -> int:
    from kernels import gpu

    known = [step.name for step in gpu.STEPS]
    unknown = [name for name in options.names if name not in known]
    if unknown:
        raise ValueError(f"no step {unknown[0]!r}; there are: {', '.join(known)}")
    _need_gpu("gpu tries and times")
    steps = [step for step in gpu.STEPS if not options.names or step.name in options.names]
    return 0 if all(one.outcome == "passed" for one in gpu.run(steps)) else 1


if __name__ == "__main__":
    sys.exit(main())
