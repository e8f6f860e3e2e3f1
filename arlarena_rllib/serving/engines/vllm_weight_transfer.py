"""Weight-transfer backend for vLLM that reads a safetensors file; works on CPU and GPU. Imported by vLLM's workers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from safetensors.torch import load_file
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.platforms import current_platform

BACKEND = "arlarena_file"


@dataclass
class FileInitInfo(WeightTransferInitInfo):
    """Nothing is needed: the path comes with each update."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):
    """Path of a safetensors file that this worker can read."""

    path: str = ""


class FileWeightTransfer(WeightTransferEngine[FileInitInfo, FileUpdateInfo]):
    """Loads a whole checkpoint file through vLLM's layer-wise reload.

    The reload is needed on CPU too: linear layers give up their weight for a packed copy after loading, so that a plain
    ``load_weights`` would have nothing to write into.
    """

    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """No connection to set up."""

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, str]) -> None:
        self.receive_weights(self.parse_update_info(update_info))
        if not current_platform.is_cpu():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        self.model.load_weights(list(load_file(update_info.path).items()))

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        if current_platform.is_cpu():
            self._repack_output_layer()

    def shutdown(self) -> None:
        """No connection to close."""

    def _repack_output_layer(self) -> None:
        """Renew the packed copy of a tied output layer, which the reload leaves at the old weights."""
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        output_layer = getattr(self.model, "lm_head", None)
        if isinstance(getattr(output_layer, "weight", None), torch.Tensor):
            dispatch_cpu_unquantized_gemm(output_layer, remove_weight=False)


if BACKEND not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(BACKEND, FileWeightTransfer)


class FileTransferWorker:
    """Mixed into vLLM's workers for the side effect of importing this module there: it registers the backend."""
