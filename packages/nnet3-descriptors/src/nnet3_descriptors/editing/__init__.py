"""Changing networks: every function takes a network and returns another."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_descriptors.editing.arithmetic import average, scale, weighted_sum
    from nnet3_descriptors.editing.collapse import collapse_model
    from nnet3_descriptors.editing.combine import CollapseOptions
    from nnet3_descriptors.editing.directives import apply_edits
    from nnet3_descriptors.editing.low_rank import apply_svd, reduce_rank
    from nnet3_descriptors.editing.settings import (
        convert_repeated_to_block,
        convert_to_fixed_affine,
        set_dropout_proportion,
        set_learning_rate,
        set_learning_rate_factor,
    )
    from nnet3_descriptors.editing.structure import (
        remove_orphan_components,
        remove_orphan_nodes,
        remove_orphans,
        remove_output_nodes,
        rename_node,
    )

__all__ = [
    "CollapseOptions",
    "apply_edits",
    "apply_svd",
    "average",
    "collapse_model",
    "convert_repeated_to_block",
    "convert_to_fixed_affine",
    "reduce_rank",
    "remove_orphan_components",
    "remove_orphan_nodes",
    "remove_orphans",
    "remove_output_nodes",
    "rename_node",
    "scale",
    "set_dropout_proportion",
    "set_learning_rate",
    "set_learning_rate_factor",
    "weighted_sum",
]

if not TYPE_CHECKING:  # or any name would be one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_descriptors.editing.arithmetic": (
                "average",
                "scale",
                "weighted_sum",
            ),
            "nnet3_descriptors.editing.collapse": ("collapse_model",),
            "nnet3_descriptors.editing.combine": ("CollapseOptions",),
            "nnet3_descriptors.editing.directives": ("apply_edits",),
            "nnet3_descriptors.editing.low_rank": (
                "apply_svd",
                "reduce_rank",
            ),
            "nnet3_descriptors.editing.settings": (
                "convert_repeated_to_block",
                "convert_to_fixed_affine",
                "set_dropout_proportion",
                "set_learning_rate",
                "set_learning_rate_factor",
            ),
            "nnet3_descriptors.editing.structure": (
                "remove_orphan_components",
                "remove_orphan_nodes",
                "remove_orphans",
                "remove_output_nodes",
                "rename_node",
            ),
        },
    )
