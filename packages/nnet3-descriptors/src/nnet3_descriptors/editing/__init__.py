"""Changing networks: every function takes a network and returns another."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_descriptors.editing.arithmetic import average as average
    from nnet3_descriptors.editing.arithmetic import scale as scale
    from nnet3_descriptors.editing.arithmetic import weighted_sum as weighted_sum
    from nnet3_descriptors.editing.collapse import CollapseOptions as CollapseOptions
    from nnet3_descriptors.editing.collapse import collapse_model as collapse_model
    from nnet3_descriptors.editing.directives import apply_edits as apply_edits
    from nnet3_descriptors.editing.inference import affine_to_tdnn as affine_to_tdnn
    from nnet3_descriptors.editing.inference import for_inference as for_inference
    from nnet3_descriptors.editing.inference import split_affine_maps as split_affine_maps
    from nnet3_descriptors.editing.low_rank import apply_svd as apply_svd
    from nnet3_descriptors.editing.low_rank import reduce_rank as reduce_rank
    from nnet3_descriptors.editing.settings import (
        convert_repeated_to_block as convert_repeated_to_block,
    )
    from nnet3_descriptors.editing.settings import (
        convert_to_fixed_affine as convert_to_fixed_affine,
    )
    from nnet3_descriptors.editing.settings import set_dropout_proportion as set_dropout_proportion
    from nnet3_descriptors.editing.settings import set_learning_rate as set_learning_rate
    from nnet3_descriptors.editing.settings import (
        set_learning_rate_factor as set_learning_rate_factor,
    )
    from nnet3_descriptors.editing.structure import (
        remove_orphan_components as remove_orphan_components,
    )
    from nnet3_descriptors.editing.structure import remove_orphan_nodes as remove_orphan_nodes
    from nnet3_descriptors.editing.structure import remove_orphans as remove_orphans
    from nnet3_descriptors.editing.structure import remove_output_nodes as remove_output_nodes
    from nnet3_descriptors.editing.structure import rename_node as rename_node
else:
    __getattr__, __dir__ = on_first_use(__name__)
