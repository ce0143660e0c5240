"""The start of command-line tools, where Ctrl-C ends them quietly even during imports.

Importing a module can be interrupted. So this module and the package itself import none; a tool's
module imports NumPy and others.
"""

import gc
import importlib
import os
import signal
from collections.abc import Callable

INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 plus the number of the signal, as in shells."""

_OBJECTS_UNTIL_COLLECTION = 10_000
"""Number of new objects before Python looks for garbage. By default it is 700, and importing
modules makes hundreds of thousands of objects, none of them garbage."""


def entry_point(module: str, tool: str = "") -> Callable[[], None]:
    """Returns a function that imports a module and runs its `main`.

    Args:
        module: Full name of the module; its last part is the tool's name.
        tool: The name of one of several tools of a module; `main` gets it.
    """
    arguments = (tool,) if tool else ()
    tool = tool or module.rpartition(".")[2].replace("_", "-")

    def end(*_: object) -> None:
        # Exits at once: an extension during its import may turn an exception into another one.
        try:
            os.write(2, f"{tool}: interrupted\n".encode())
        finally:
            os._exit(INTERRUPTED)

    def main() -> None:
        gc.set_threshold(_OBJECTS_UNTIL_COLLECTION)
        usual = signal.getsignal(signal.SIGINT)
        if usual is signal.default_int_handler:  # not if Ctrl-C is ignored, as in the background
            signal.signal(signal.SIGINT, end)
        imported = importlib.import_module(module)
        if usual is signal.default_int_handler:
            signal.signal(signal.SIGINT, usual)
        try:
            imported.main(*arguments)
        except KeyboardInterrupt:  # before the tool handles it, or after its end
            end()
        finally:
            gc.freeze()  # these objects live until the end; collecting them would waste time

    return main


apply_cmvn_sliding = entry_point("nnet3_tools.speech.apply_cmvn_sliding")
chain_est_phone_lm = entry_point("nnet3_tools.chain.making.chain_est_phone_lm")
chain_get_supervision = entry_point("nnet3_tools.chain.making.chain_get_supervision")
chain_make_num_fst_e2e = entry_point(
    "nnet3_tools.chain.making.end_to_end", "chain-make-num-fst-e2e"
)
chain_make_den_fst = entry_point("nnet3_tools.chain.making.chain_make_den_fst")
compute_fbank_feats = entry_point("nnet3_tools.speech.compute_feats", "compute-fbank-feats")
compute_mfcc_feats = entry_point("nnet3_tools.speech.compute_feats", "compute-mfcc-feats")
compute_vad = entry_point("nnet3_tools.speech.compute_vad")
cuda_compiled = entry_point("nnet3_tools.cuda_checks", "cuda-compiled")
cuda_gpu_available = entry_point("nnet3_tools.cuda_checks", "cuda-gpu-available")
ivector_extract_online2 = entry_point("nnet3_tools.speech.ivector_extract_online2")
ivector_mean = entry_point("nnet3_tools.speech.ivector_mean")
ivector_plda_scoring = entry_point("nnet3_tools.speech.ivector_plda_scoring")
nnet3_am_init = entry_point("nnet3_tools.training.nnet3_am_init")
nnet3_am_train_transitions = entry_point("nnet3_tools.training.nnet3_am_train_transitions")
nnet3_am_copy = entry_point("nnet3_tools.models.nnet3_am_copy")
nnet3_am_info = entry_point("nnet3_tools.models.nnet3_am_info")
nnet3_average = entry_point("nnet3_tools.models.nnet3_average")
nnet3_chain_add_post_to_egs = entry_point(
    "nnet3_tools.chain.posteriors", "nnet3-chain-add-post-to-egs"
)
nnet3_chain_compute_post = entry_point("nnet3_tools.chain.posteriors", "nnet3-chain-compute-post")
nnet3_chain_combine = entry_point("nnet3_tools.chain.nnet3_chain_combine")
nnet3_chain_compute_prob = entry_point("nnet3_tools.chain.nnet3_chain_compute_prob")
nnet3_chain_copy_egs = entry_point("nnet3_tools.chain.egs.nnet3_chain_copy_egs")
nnet3_chain_e2e_get_egs = entry_point(
    "nnet3_tools.chain.making.end_to_end", "nnet3-chain-e2e-get-egs"
)
nnet3_chain_fine_tune = entry_point("nnet3_tools.recipes.nnet3_chain_fine_tune")
nnet3_chain_get_egs = entry_point("nnet3_tools.chain.making.nnet3_chain_get_egs")
nnet3_chain_merge_egs = entry_point("nnet3_tools.chain.egs.nnet3_chain_merge_egs")
nnet3_chain_normalize_egs = entry_point("nnet3_tools.chain.making.nnet3_chain_normalize_egs")
nnet3_chain_shuffle_egs = entry_point("nnet3_tools.chain.egs.nnet3_chain_shuffle_egs")
nnet3_chain_subset_egs = entry_point("nnet3_tools.chain.egs.nnet3_chain_subset_egs")
nnet3_chain_train = entry_point("nnet3_tools.chain.nnet3_chain_train")
nnet3_copy = entry_point("nnet3_tools.models.nnet3_copy")
nnet3_info = entry_point("nnet3_tools.models.nnet3_info")
nnet3_init = entry_point("nnet3_tools.models.nnet3_init")
nnet3_report = entry_point("nnet3_tools.models.nnet3_report")
nnet3_to_onnx = entry_point("nnet3_tools.models.nnet3_to_onnx")
nnet3_compute = entry_point("nnet3_tools.compute.nnet3_compute")
nnet3_compute_batch = entry_point("nnet3_tools.compute.nnet3_compute_batch")
nnet3_compute_looped = entry_point("nnet3_tools.compute.nnet3_compute_looped")
nnet3_xvector_compute = entry_point("nnet3_tools.compute.nnet3_xvector_compute")
nnet3_xvector_compute_batched = entry_point(
    "nnet3_tools.compute.nnet3_xvector_compute", "nnet3-xvector-compute-batched"
)
nnet3_copy_egs = entry_point("nnet3_tools.egs.nnet3_copy_egs")
nnet3_merge_egs = entry_point("nnet3_tools.egs.nnet3_merge_egs")
nnet3_shuffle_egs = entry_point("nnet3_tools.egs.nnet3_shuffle_egs")
nnet3_subset_egs = entry_point("nnet3_tools.egs.nnet3_subset_egs")
nnet3_get_egs = entry_point("nnet3_tools.egs.nnet3_get_egs")
nnet3_egs_augment_image = entry_point("nnet3_tools.egs.nnet3_egs_augment_image")
nnet3_get_egs_simple = entry_point("nnet3_tools.egs.nnet3_get_egs_simple")
nnet3_get_egs_dense_targets = entry_point("nnet3_tools.egs.nnet3_get_egs_dense_targets")
nnet3_transcribe = entry_point("nnet3_tools.speech.nnet3_transcribe")
nnet3_xvector_get_egs = entry_point("nnet3_tools.egs.nnet3_xvector_get_egs")
nnet3_train = entry_point("nnet3_tools.training.nnet3_train")
nnet3_train_recipe = entry_point("nnet3_tools.recipes.nnet3_train_recipe")
nnet3_compute_prob = entry_point("nnet3_tools.training.nnet3_compute_prob")
nnet3_show_progress = entry_point("nnet3_tools.training.nnet3_show_progress")
nnet3_combine = entry_point("nnet3_tools.training.nnet3_combine")
nnet3_compute_from_egs = entry_point("nnet3_tools.training.nnet3_compute_from_egs")
nnet3_acc_lda_stats = entry_point("nnet3_tools.training.lda_tools", "nnet3-acc-lda-stats")
nnet3_chain_acc_lda_stats = entry_point(
    "nnet3_tools.training.lda_tools", "nnet3-chain-acc-lda-stats"
)
nnet_get_feature_transform = entry_point(
    "nnet3_tools.training.lda_tools", "nnet-get-feature-transform"
)
nnet3_am_adjust_priors = entry_point("nnet3_tools.training.nnet3_am_adjust_priors")
select_voiced_frames = entry_point("nnet3_tools.speech.select_voiced_frames")
