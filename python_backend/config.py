"""The deployment: one YAML file, checked once, then frozen.

`model_repository/deployment.yaml` is the single source; `python -m tools.make_repository` writes each
model's config.pbtxt from it, and every process of the server reads it again at start. An unknown key
is an error that names the key and the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from python_backend.addresses import address_problem
from python_backend.model_settings import ModelSettings, Settings
from python_backend.replica_names import replica_problem, subserver_names
from router_backend.core.errors import ConfigError
from router_backend.core.replicas import ReplicaIndex, Replicas
from router_backend.core.request import ModelIndex
from router_backend.scheduler.rounds import Mode
from router_backend.stream.lives import LossPolicy, PeerLoss

Address = Annotated[str, Field(pattern=r"^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}$")]
"""host:port; an IPv6 address stands in brackets."""

FRONTS = ("token_router", "router")
"""The Triton models that own clients: one of each door."""


class PolicySettings(Settings):
    """The routing algorithm of requests that do not name one."""

    name: str = "r_stitch"
    params: dict[str, float | int | bool | str] = Field({})


class FrontSettings(Settings):
    """What clients may ask for, and how answers leave."""

    tokenizer_dir: str = ""
    """Relative to the repository; default: the entry model's directory."""
    live_max: int = Field(256, ge=1)
    queue_max: int = Field(1024, ge=0)
    max_tokens_default: int = Field(128, ge=1)
    prompt_bytes_max: int = Field(1_000_000, ge=1)
    request_timeout_s: float = Field(600.0, gt=0)
    flush_tokens: int = Field(8, ge=1)
    flush_ms: float = Field(20.0, ge=0)
    heartbeat_ms: float = Field(250.0, gt=0)
    peer_timeout_s: float = Field(2.0, gt=0)
    stall_s: float = Field(60.0, gt=0)
    """Longest step of an engine; a model whose step takes longer counts as frozen until it ends."""
    cancel_poll_ms: float = Field(100.0, gt=0)
    unsent_max: int = Field(256, ge=1)
    """Responses that may wait for one slow reader; what comes then is gathered into one."""
    slow_reader_s: float = Field(30.0, gt=0)
    """How long a reader may stay that slow before its request is given up."""
    policies: tuple[str, ...] | None = None
    """Policies that a request may choose; default all."""
    cutoff_range: tuple[float, float] | None = None
    """Least and greatest cutoff that a request may choose for its policy; default any."""

    @field_validator("cutoff_range")
    @classmethod
    def _rising(cls, bounds: tuple[float, float] | None) -> tuple[float, float] | None:
        if bounds is not None and not bounds[0] <= bounds[1]:
            raise ValueError(f"cutoff_range: {list(bounds)} must rise")
        return bounds


class Deployment(Settings):
    """Everything that the processes of one server must agree on."""

    models: Annotated[tuple[ModelSettings, ...], Field(min_length=1)]
    """Smallest first; `route` destinations and `seen` follow this order."""
    entry: str = ""
    """Model that writes the first token; default the first one."""
    policy: PolicySettings = PolicySettings()
    policy_files: tuple[str, ...] = ()
    """Python files with policies of your own, relative to the repository and inside it: beside this file, as
    Triton takes every folder there for a model."""
    mode: Mode = Mode.DELAYED
    """How models take turns; the others are there to be compared with."""
    deadline_ms: float = Field(50.0, ge=0)
    """Longest deliberate wait for a batch to fill."""
    thresholds: Literal["fixed", "auto"] = "fixed"
    """fixed: each model's `threshold`; auto: planned from what the server observes, all ones while that is
    too little or the leading model 0 is silent."""
    profile: str = ""
    """For `thresholds: auto`: measured step times (`python -m tools.measure_steps`), relative to the
    repository; default: they are learned."""
    memory_budget: str | dict[str, str] = ""
    """What models may take of a device: a size (8GiB), or auto (half of the memory of machine or control
    group, nine tenths of a GPU's); {cpu: 8GiB, "cuda:0": auto} by device. Default: nobody checks."""
    front: FrontSettings = FrontSettings()
    on_peer_loss: PeerLoss = PeerLoss.FAIL
    """What becomes of a request whose model was lost: fail (an error), continue_local (a model that lives
    finishes it alone), retry (it goes on once the model is back). docs/hosts.md."""
    retry_s: float = Field(10.0, gt=0)
    """Longest wait for a model that can go on; then the request ends with an error."""
    allowed_dirs: tuple[str, ...] = ()
    """Folders outside the repository that its paths and links may lead into; whoever names one trusts it.
    Default: everything must be inside."""
    run_dir: str = ""
    """Folder of the sockets; default: private to the running server."""
    transport: Literal["ipc", "tcp"] = "ipc"
    """ipc: the processes of one server; tcp: those of several servers, on any host (docs/hosts.md)."""
    addresses: dict[str, Address] = Field({})
    """For tcp: host:port of every subserver and of every door in use (`token_router`, `router`), as its peers
    reach it."""
    listen: dict[str, Address] = Field({})
    """For tcp: host:port at which an endpoint listens where that is not its address, as in a container that
    is reached by the name of a service: `{small: "0.0.0.0:5603"}`. Default: its address."""
    keys: str = ""
    """For tcp: folder of CURVE keys (`python -m tools.make_keys`), relative to the repository."""
    insecure: bool = False
    """Allows tcp without keys beyond the loopback interface: whoever reaches a port is believed then."""
    event_log: str = ""
    """Folder for a log of every launch and hand-off, relative to the repository; default: none is kept."""

    @model_validator(mode="after")
    def _consistent(self) -> Deployment:
        names = [model.name for model in self.models]
        if len(set(names)) != len(names):
            raise ValueError(f"models: names must differ, got {names}")
        self._check_replicas()
        if self.entry and self.entry not in names:
            raise ValueError(f"entry: {self.entry!r} is not one of {names}")
        if self.thresholds == "auto" and self.mode is not Mode.DELAYED:
            raise ValueError(f"thresholds: auto needs mode delayed, not {self.mode.value}")
        if self.transport == "tcp":
            self._check_addresses()
        return self

    def _check_replicas(self) -> None:
        problem = replica_problem(self._counted, FRONTS)
        if problem:
            raise ValueError(problem)
        if self.mode.is_barrier and not self.replicas.is_single:
            raise ValueError(
                f"replicas: mode {self.mode.value} knows one of each model: use delayed or eager_async"
            )

    def _check_addresses(self) -> None:
        is_protected = bool(self.keys) or self.insecure
        problem = address_problem(self.addresses, self.listen, self.subservers, is_protected)
        if problem:
            raise ValueError(problem)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(model.name for model in self.models)

    @property
    def replicas(self) -> Replicas:
        return Replicas(tuple(model.replicas for model in self.models))

    @property
    def subservers(self) -> tuple[str, ...]:
        """Names of all subservers by their number (`Replicas`): the models, then their further replicas."""
        return subserver_names(self._counted)

    @property
    def _counted(self) -> list[tuple[str, int]]:
        return [(model.name, model.replicas) for model in self.models]

    @property
    def loss(self) -> LossPolicy:
        return LossPolicy(self.names, self.on_peer_loss, self.retry_s)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Everybody who listens: the subservers and the doors."""
        return (*self.subservers, *FRONTS)

    @property
    def entry_index(self) -> int:
        return self.names.index(self.entry) if self.entry else 0

    @property
    def standing_thresholds(self) -> tuple[int, ...]:
        """What holds while nothing is announced."""
        is_fixed = self.thresholds == "fixed"
        return tuple(model.threshold if is_fixed else 1 for model in self.models)

    def model(self, name: str) -> ModelSettings:
        return self.models[self.names.index(name)]

    def model_of(self, subserver: str) -> ModelIndex:
        """The model that `subserver` (its name) serves."""
        return self.replicas.models[self.subservers.index(subserver)]

    def served(self, subserver: str) -> ModelSettings:
        """What `subserver` is to be: its model, on its own device."""
        replicas, number = self.replicas, ReplicaIndex(self.subservers.index(subserver))
        model = self.models[replicas.models[number]]
        if not model.devices:
            return model
        copy = replicas.of(replicas.models[number]).index(number)
        return model.model_copy(update={"device": model.devices[copy]})


def parse_deployment(text: str, source: str) -> Deployment:
    """The deployment in YAML `text`; ConfigError names `source`, the key and what is wrong with it."""
    try:
        return Deployment.model_validate(yaml.safe_load(text) or {})
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not YAML: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{source}: {_explained(error)}") from error


def load_deployment(path: Path) -> Deployment:
    try:
        return parse_deployment(path.read_text(), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: cannot read the deployment file") from error


def _explained(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'file'}: {problem['msg']}" for problem in error.errors()
    )
