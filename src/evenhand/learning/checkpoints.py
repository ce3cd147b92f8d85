"""Checkpoints of a training run: the zip of Stable-Baselines3, with the progress of the run in it.

    *.pth               parameters and optimisers, as Stable-Baselines3 writes them
    evenhand.json       settings, problem, scaling of rewards, learning curve, counters
    best.safetensors    the best network so far

Only tensors and JSON are read, so that a checkpoint cannot run code. A resumed run continues with the parameters and
optimisers of the checkpoint on new episodes; the replay memory of SAC and TD3 starts empty.
"""

import io
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.save_util import load_from_zip_file, save_to_zip_file

from evenhand.errors import InvalidInputError
from evenhand.model.io import write_atomically
from evenhand.policies.network import Network

FACTS, BEST = "evenhand.json", "best.safetensors"


class Checkpoint(NamedTuple):
    """Content of a checkpoint."""

    facts: dict[str, Any]
    """Settings and progress of the run."""

    best: Network
    """Best network so far."""

    parameters: dict[str, Any]
    """Parameters and optimisers by module."""

    variables: dict[str, torch.Tensor]
    """Parameters outside of modules, such as the entropy coefficient of SAC."""

    def restore(self, model: BaseAlgorithm) -> None:
        """Set the parameters, optimisers and counters of a model."""
        model.set_parameters(self.parameters, exact_match=True, device="cpu")
        for name, tensor in self.variables.items():
            getattr(model, name).data = tensor.data
        model.num_timesteps, model._n_updates = self.facts["steps"], self.facts["updates"]


def write_checkpoint(path: Path, model: BaseAlgorithm, best: Network, facts: dict[str, Any]) -> None:
    """Write a checkpoint completely or not at all.

    Args:
        path: the file.
        model: the model in training.
        best: best network so far.
        facts: settings and progress of the run.
    """
    found = {name: getattr(model, name) for name in model._get_torch_save_params()[1]}
    variables = {name: tensor for name, tensor in found.items() if isinstance(tensor, torch.Tensor)}
    layers = zip(best.weights, best.biases, strict=True)
    tensors = {
        f"{layer}.{key}": array for layer, pair in enumerate(layers) for key, array in zip("wb", pair, strict=True)
    }
    facts = facts | {"steps": model.num_timesteps, "updates": model._n_updates, "squash": best.squash}
    archive = io.BytesIO()
    save_to_zip_file(archive, params=model.get_parameters(), pytorch_variables=variables or None)
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr(FACTS, json.dumps(facts))
        file.writestr(BEST, save_tensors(tensors))
    write_atomically(path, archive.getvalue())


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        InvalidInputError: the file is not a checkpoint, or is damaged.
    """
    try:
        data = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            if file.testzip() is not None:
                raise ValueError("a checksum differs")
            facts, tensors = json.loads(file.read(FACTS)), load_tensors(file.read(BEST))
        layers = range(len(tensors) // 2)
        weights, biases = ([tensors[f"{layer}.{key}"] for layer in layers] for key in "wb")
        _, parameters, variables = load_from_zip_file(io.BytesIO(data), load_data=False, device="cpu")
        return Checkpoint(facts, Network(weights, biases, facts["squash"]), parameters, variables or {})
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001  # a damaged file raises errors of many kinds
        raise InvalidInputError(f"{path}: not a checkpoint of training ({error!r})") from None
