"""Policy weights on their way from the learner to every replica: one store per app, node-local files at the end."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arlarena_rllib.errors import ServingError

if TYPE_CHECKING:
    import numpy as np
    import ray
    import torch

    NamedTensors = Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]

STORE_NAMESPACE = "arlarena"
FILE_PREFIX = "arlarena-weights"
_FILE_PATTERN = re.compile(rf"{FILE_PREFIX}-.*-pid(\d+)-\d+\.safetensors(\.part)?")


class WeightStoreActor:
    """Holds the newest weights of one app: a version and a reference to the bytes, never the bytes themselves.

    ``serial`` counts publications; it grows even when ``version`` goes back after a restore.
    """

    def __init__(self) -> None:
        self._serial = 0
        self._version = 0
        self._refs: list[ray.ObjectRef[np.ndarray]] = []
        self._changed = asyncio.Event()

    async def put(self, version: int, refs: list[ray.ObjectRef[np.ndarray]]) -> int:
        """Replace the weights (``refs`` is a list so that Ray passes the reference on); returns the new serial."""
        self._serial, self._version, self._refs = self._serial + 1, version, refs
        self._changed.set()
        self._changed = asyncio.Event()
        return self._serial

    async def get(self) -> tuple[int, int, list[ray.ObjectRef[np.ndarray]]]:
        """Return (serial, version, references); serial 0 and no reference before the first publication."""
        return self._serial, self._version, self._refs

    async def wait_newer(self, serial: int) -> int:
        """Return the current serial as soon as it is greater than ``serial``."""
        while self._serial <= serial:
            await self._changed.wait()
        return self._serial


class WeightStore:
    """Handle of the named store actor of one app; usable in every process of the cluster."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    @classmethod
    def create(cls, app_name: str) -> WeightStore:
        """Start the store of ``app_name``; it ends with the process that created it."""
        import ray

        actor_class = ray.remote(num_cpus=0, max_concurrency=1000)(WeightStoreActor)
        return cls(actor_class.options(name=app_name, namespace=STORE_NAMESPACE).remote())

    @classmethod
    def find(cls, app_name: str) -> WeightStore | None:
        """Return the running store of ``app_name``, or None."""
        import ray

        try:
            return cls(ray.get_actor(app_name, namespace=STORE_NAMESPACE))
        except ValueError:
            return None

    def put(self, version: int, data_N: np.ndarray, *, timeout_s: float) -> None:
        """Publish serialised weights (uint8 array in safetensors format) under ``version``."""
        import ray

        ray.get(self.actor.put.remote(version, [ray.put(data_N)]), timeout=timeout_s)

    async def newest(self) -> tuple[int, int, np.ndarray | None]:
        """Return (serial, version, uint8 array); the array is a view of shared memory where that is possible."""
        serial, version, refs = await self.actor.get.remote()
        return serial, version, (await refs[0]) if refs else None

    def kill(self) -> None:
        """End the store; replicas that follow it notice."""
        import ray

        ray.kill(self.actor)


def serialize_weights(named_tensors: NamedTensors) -> np.ndarray:
    """Return named tensors as one uint8 array in safetensors format.

    Args:
        named_tensors: Usually ``module.named_parameters()``; any dtype and device, sharded tensors are gathered.
            Of several names for the same storage (tied weights) the first one is kept.

    Raises:
        ServingError: Nothing was given, or a value is not a tensor.
    """
    import numpy as np
    import torch
    from safetensors.torch import save

    pairs = named_tensors.items() if isinstance(named_tensors, Mapping) else named_tensors
    tensors: dict[str, torch.Tensor] = {}
    seen: set[tuple[Any, ...]] = set()
    for name, parameter in pairs:
        if not isinstance(parameter, torch.Tensor):
            raise ServingError(f"Weight {name!r} is a {type(parameter).__name__}, not a torch.Tensor.")
        tensor = parameter.detach()
        tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        identity = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and identity in seen:
            continue
        seen.add(identity)
        tensors[name] = tensor.to("cpu").contiguous()
    if not tensors:
        raise ServingError("No weights to publish: pass module.named_parameters().")
    return np.frombuffer(save(_without_shared_storage(tensors)), dtype=np.uint8)


def _without_shared_storage(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Clone tensors that are views of one storage (safetensors refuses those); others are passed on as they are."""
    owners: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if storage in owners else tensor
        owners.add(storage)
    return result


def weight_directory() -> Path:
    """Return the fastest node-local directory: shared memory where it exists, else the temporary one."""
    shared_memory = Path("/dev/shm")
    return shared_memory if os.access(shared_memory, os.W_OK) else Path(tempfile.gettempdir())


def write_local_file(app_name: str, serial: int, data_N: np.ndarray) -> Path:
    """Write serialised weights to a file of this process and return its path; the caller removes it after loading."""
    path = weight_directory() / f"{FILE_PREFIX}-{app_name}-pid{os.getpid()}-{serial}.safetensors"
    part = path.with_name(path.name + ".part")
    try:
        data_N.tofile(part)
        return part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ServingError(
            f"Cannot write {data_N.nbytes / 1e6:.0f} MB of weights to {path}: {error}. Free space there "
            "(containers: enlarge /dev/shm)."
        ) from error


def clean_stale_files() -> list[Path]:
    """Remove weight files whose process is gone, e.g. killed while it loaded them; returns what was removed."""
    removed = []
    for path in weight_directory().glob(f"{FILE_PREFIX}-*"):
        match = _FILE_PATTERN.fullmatch(path.name)
        if match and not _is_process_alive(int(match[1])):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def remove_app_files(app_name: str) -> None:
    """Remove the weight files that processes of ``app_name`` left on this node."""
    for path in weight_directory().glob(f"{FILE_PREFIX}-{app_name}-pid*"):
        if _FILE_PATTERN.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _is_process_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
