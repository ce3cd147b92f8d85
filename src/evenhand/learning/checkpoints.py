"""Everything that a training run needs to go on, in one file that cannot run code.

A checkpoint is a zip of

    manifest.json       settings, numbers and names, and the SHA-256 of the tensors
    state.safetensors   every array: parameters, optimisers, replay memory, copies of the problem, random states

It is written beside its place and renamed, so that it is whole or the one before. What is not in it cannot matter for
what comes next: a run that was stopped and resumed ends like one that was not.
"""

import hashlib
import io
import json
import random
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from evenhand.errors import InvalidInput
from evenhand.model.io import write_atomically
from evenhand.typing import Array

FORMAT = "evenhand-training"
SCHEMA = 1
_MEMORY = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


@contextmanager
def own_randomness() -> Iterator[None]:
    """Stable-Baselines3 draws from global generators: what they were is put back afterwards. One torch thread."""
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002  # the global generator is what is fenced off
    torch_state, threads, python_state = torch.get_rng_state(), torch.get_num_threads(), random.getstate()
    torch.set_num_threads(1)  # these networks are too small for two, and sums must not depend on the machine
    try:
        yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        torch.set_num_threads(threads)


def take_model(model: BaseAlgorithm) -> tuple[dict[str, Array], dict[str, Any]]:
    """A model's arrays and numbers."""
    arrays: dict[str, Array] = {}
    facts: dict[str, Any] = {"optimisers": {}}
    # Parameters by module; an optimiser has numbers in groups, and tensors for each parameter.
    for name, state in model.get_parameters().items():
        if name.endswith("optimizer"):
            facts["optimisers"][name] = state["param_groups"]
            for number, entries in state["state"].items():
                arrays |= {f"{name}/{number}/{key}": tensor.numpy() for key, tensor in entries.items()}
        else:
            arrays |= {f"{name}/{key}": tensor.numpy() for key, tensor in state.items()}
    # Variables that are not in any module, such as the logarithm of SAC's entropy.
    for name in model._get_torch_save_params()[1]:
        if isinstance(tensor := getattr(model, name), torch.Tensor):
            arrays[f"variable/{name}"] = tensor.detach().numpy()
    # A rollout goes on from the last observation: without it the first step after resuming would be another.
    assert model._last_obs is not None
    arrays["last/observation"] = np.asarray(model._last_obs)
    if getattr(model, "_last_episode_starts", None) is not None:
        arrays["last/starts"] = np.asarray(model._last_episode_starts)
    facts["counters"] = {"num_timesteps": model.num_timesteps, "_n_updates": model._n_updates}
    if isinstance(model, OffPolicyAlgorithm):
        _take_memory(model, arrays, facts)
    _take_randomness(model, arrays, facts)
    return arrays, facts


def _take_memory(model: OffPolicyAlgorithm, arrays: dict[str, Array], facts: dict[str, Any]) -> None:
    memory = model.replay_buffer
    assert memory is not None
    # Only what is filled: the memory is large from the start.
    filled = memory.buffer_size if memory.full else memory.pos
    arrays |= {f"memory/{name}": getattr(memory, name)[:filled] for name in _MEMORY}
    facts["memory"] = {"pos": memory.pos, "full": memory.full}
    facts["counters"]["_episode_num"] = model._episode_num


def _take_randomness(model: BaseAlgorithm, arrays: dict[str, Array], facts: dict[str, Any]) -> None:
    # Stable-Baselines3 draws from the global generator.
    state = np.random.get_state(legacy=False)  # noqa: NPY002
    arrays["random/torch"] = torch.get_rng_state().numpy()
    arrays["random/numpy"] = state["state"]["key"]
    facts["random"] = {
        "numpy": {"pos": state["state"]["pos"], "has_gauss": state["has_gauss"], "gauss": state["gauss"]},
        "space": model.action_space.np_random.bit_generator.state,
    }


def put_model(model: BaseAlgorithm, arrays: dict[str, Array], facts: dict[str, Any]) -> None:
    """Put a model's arrays and numbers back."""
    parameters: dict[str, Any] = {}
    for name, state in model.get_parameters().items():
        own = {key.removeprefix(f"{name}/"): value for key, value in arrays.items() if key.startswith(f"{name}/")}
        # A copy: what came from a file is read-only.
        tensors = {key: torch.from_numpy(value.copy()) for key, value in own.items()}
        if name.endswith("optimizer"):
            entries: dict[int, dict[str, torch.Tensor]] = {}
            for key, tensor in tensors.items():
                number, entry = key.split("/")
                entries.setdefault(int(number), {})[entry] = tensor
            parameters[name] = {"state": entries, "param_groups": facts["optimisers"][name]}
        else:
            # The same network, or the settings are not those that the run began with.
            assert set(tensors) == set(state)
            parameters[name] = tensors
    model.set_parameters(parameters, exact_match=True, device="cpu")
    for name in model._get_torch_save_params()[1]:
        if isinstance(variable := getattr(model, name), torch.Tensor):
            variable.data = torch.from_numpy(arrays[f"variable/{name}"].copy())
    model._last_obs = arrays["last/observation"].copy()
    if "last/starts" in arrays:
        model._last_episode_starts = arrays["last/starts"].copy()
    for name, value in facts["counters"].items():
        setattr(model, name, value)
    if isinstance(model, OffPolicyAlgorithm):
        memory = model.replay_buffer
        assert memory is not None
        for name in _MEMORY:
            filled = arrays[f"memory/{name}"]
            getattr(memory, name)[: len(filled)] = filled
        memory.pos, memory.full = facts["memory"]["pos"], facts["memory"]["full"]
    _put_randomness(model, arrays, facts)


def _put_randomness(model: BaseAlgorithm, arrays: dict[str, Array], facts: dict[str, Any]) -> None:
    saved = facts["random"]["numpy"]
    state = {"bit_generator": "MT19937", "state": {"key": arrays["random/numpy"], "pos": saved["pos"]}}
    np.random.set_state(state | {"has_gauss": saved["has_gauss"], "gauss": saved["gauss"]})  # noqa: NPY002
    torch.set_rng_state(torch.from_numpy(arrays["random/torch"].copy()))
    model.action_space.np_random.bit_generator.state = facts["random"]["space"]


def write_checkpoint(path: Path, arrays: dict[str, Array], facts: dict[str, Any]) -> None:
    """Write a checkpoint as a whole."""
    body = save_tensors({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    manifest = {"format": FORMAT, "schema": SCHEMA, "sha256": hashlib.sha256(body).hexdigest(), "facts": facts}
    archive = io.BytesIO()
    # Tensors do not get smaller: packing them would only take time.
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        file.writestr("manifest.json", json.dumps(manifest))
        file.writestr("state.safetensors", body)
    write_atomically(path, archive.getvalue())


def read_checkpoint(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read a checkpoint.

    Raises:
        InvalidInput: it is not one, or it is damaged.
    """
    try:
        with zipfile.ZipFile(path) as file:
            manifest = json.loads(file.read("manifest.json"))
            body = file.read("state.safetensors")
        if manifest["format"] != FORMAT or manifest["schema"] != SCHEMA:
            raise InvalidInput("made by another version")
        # Checked before they are read: a file that was cut off must not be half of a state.
        if hashlib.sha256(body).hexdigest() != manifest["sha256"]:
            raise InvalidInput("its tensors are not those its manifest describes")
        return load_tensors(body), manifest["facts"]
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001  # whatever a damaged file provokes is its fault
        raise InvalidInput(f"{path}: not a checkpoint that training can go on from ({error})") from None
