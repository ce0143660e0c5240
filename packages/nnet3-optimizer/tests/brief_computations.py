"""Small computations in a short text form, and the network that they are for.

The short form has only lines of `format_computation` that matter: sizes of matrices other than
4 x 4, lists, precomputed indexes, and commands without their numbers. Matrices that are neither
freed nor given to the user are freed at the end, if there is no loop.
"""

import inspect
import re
import textwrap
from collections.abc import Callable

from nnet3_computation import NnetComputation, format_computation, parse_computation, peak_bytes
from nnet3_computation.text import SUBMATRIX
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import check_computation, verify_equivalent
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.passes.renumber import renumber

CONFIG = """
input-node name=input dim=4
input-node name=ivector dim=4
component name=affine type=AffineComponent input-dim=4 output-dim=4
component name=affine2 type=AffineComponent input-dim=4 output-dim=4
component name=wide type=AffineComponent input-dim=8 output-dim=4
component name=relu type=RectifiedLinearComponent dim=4
component name=sigmoid type=SigmoidComponent dim=4
component name=noop type=NoOpComponent dim=4
component name=norm type=BatchNormComponent dim=4
component name=tdnn type=TdnnComponent input-dim=4 output-dim=4 time-offsets=0
component name=sum type=SumBlockComponent input-dim=8 output-dim=4
component name=product type=ElementwiseProductComponent input-dim=8 output-dim=4
component name=conv type=TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=2 \
height-in=2 height-out=2 height-offsets=0 time-offsets=0
component name=widen type=AffineComponent input-dim=4 output-dim=8
component-node name=affine component=affine input=input
component-node name=affine2 component=affine2 input=affine
component-node name=wide component=wide input=Append(affine, ivector)
component-node name=relu component=relu input=affine
component-node name=sigmoid component=sigmoid input=relu
component-node name=noop component=noop input=sigmoid
component-node name=norm component=norm input=noop
component-node name=tdnn component=tdnn input=norm
component-node name=sum component=sum input=Append(tdnn, wide)
component-node name=product component=product input=Append(tdnn, wide)
component-node name=conv component=conv input=Sum(sum, product)
output-node name=output input=conv
output-node name=output2 input=Sum(Scale(0.5, conv), Sum(Scale(1.5, conv), Scale(0.25, conv)))
component-node name=widen component=widen input=affine
output-node name=output3 input=widen
"""

NNET: Nnet = parse_config(CONFIG)


def computation(
    text: str, *, need_model_derivative: bool = True, frees: bool = True
) -> NnetComputation:
    """Returns the computation of a text in the short form; without `frees` it frees no more."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    sizes = [line for line in lines if re.match(r"m\d+ = \d+ x ", line)]
    lists = [line for line in lines if re.match(r"[ijrp]\d+ =", line)]
    commands = [line for line in lines if line not in sizes and line not in lists]
    if frees and "goto" not in text:
        made = re.findall(r"^m(\d+) = (?:accept|zeros|undefined|take)", "\n".join(commands), re.M)
        kept = re.findall(r"(?:free|provide \S+ =|take) m(\d+)\b", text)
        commands += [f"free m{number}" for number in sorted({*made} - {*kept}, key=int)]
    sized = {line.split(" =")[0]: line for line in sizes}
    count = max(int(number) for number in re.findall(r"\bm(\d+)", text))
    matrices = [f"m{number}" for number in range(1, count + 1)]
    named = re.findall(SUBMATRIX, "\n".join([*lists, *commands]))
    has_debug_info = any(" of " in line for line in [*sizes, *lists])
    header = [
        "nnet3 computation 1",
        f"debug_info = {str(has_debug_info).lower()}",
        f"need_model_derivative = {str(need_model_derivative).lower()}",
        *(f"node {node.name} = {number}" for number, node in enumerate(NNET.nodes)),
        *(f"component {name} = {n}" for n, name in enumerate(NNET.component_names)),
    ]
    header += [sized.get(matrix, f"{matrix} = 4 x 4") for matrix in matrices]
    header += [f"submatrices: {name}" for name in dict.fromkeys([*matrices, *named])]
    numbered = [f"c{number}: {line}" for number, line in enumerate(commands)]
    return parse_computation("\n".join([*header, *lists, *numbered]), NNET)


def draft(text: str) -> Draft:
    """Returns a computation as a draft for passes."""
    return Draft.of(NNET, computation(text))


def brief(result: NnetComputation | Draft) -> str:
    """Returns the short form of a computation."""
    if isinstance(result, Draft):
        result = result.computation()
    lines = format_computation(result, NNET).splitlines()
    kept = [line for line in lines if re.match(r"(m\d+ = \d+ x |[ijrp]\d+ =|c\d+: )", line)]
    return "\n".join(re.sub(r"^c\d+: |, (value|deriv) of .*|#\d+", "", line) for line in kept)


def proven(given: str, run: Callable[[Draft], Draft]) -> list[str]:
    """Returns the lines of what a pass makes, and what is unused then taken away.

    Both computations are checked and proven equal, and the second one's peak is no higher.
    """
    before, after = computation(given), renumber(run(draft(given))).computation()
    for each in (before, after):
        check_computation(NNET, each)
    verify_equivalent(NNET, before, after)
    assert peak_bytes(after) <= peak_bytes(before)
    return brief(after).splitlines()


def dedented(text: str) -> str:
    """Returns a text without indentation and blank lines around it."""
    return textwrap.dedent(text).strip()


def before_and_after(function: Callable[..., object]) -> tuple[str, str]:
    """Returns the two computations in the docstring of a pass."""
    text = inspect.getdoc(function) or ""
    blocks = re.split(r"(?:Before|After.*)::\n", text)
    assert len(blocks) == 3, f"{function.__name__} has no computations in its docstring"
    first, second = (_block(block) for block in blocks[1:])
    return first, second


def _block(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("    "):
            break
        lines.append(re.sub(r"\s+#.*", "", line))
    return dedented("\n".join(lines))
