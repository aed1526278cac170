"""Looks at machines before they train: this one, or each of a cluster's, also those that join later."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from search.facts.hardware import Hardware, PerTrial, concurrent_trials, per_trial
from search.record.lock import is_locked, locked
from search.record.machines import LeftOut
from search.running.cluster import alive_nodes, hardware_of, machine_of
from search.running.look import TOKEN, Look, Looker, Question, look
from search.running.prepare import Prepared
from search.study import Study, StudyError
from spaces.domains import counted
from spaces.facts import Facts
from spaces.space import Space
from trainable.bench import Say
from trainable.data import DataSet
from trainable.data.sample import DataSample, ReadThere
from trainable.errors import UserError, first_line
from trainable.files.store import Store, StoreError, is_uri
from trainable.recipe.training import COMPILED
from trainable.stages import stage
from trainable.terminal import GIB
from trainable.tune.carried import NOTHING, PickledCode
from trainable.tune.place import on_machine

# importing PyTorch takes a machine seconds, and minutes where its packages come over a slow network
ANSWER_SECONDS = 300.0
FOLDER = ".machines-"  # so begins the name of the folder that each machine reads, and writes to
CLOCK_SECONDS = 60.0
SOON = 2.0  # seconds
ON_WORKERS = ("torch", "torchvision", "timm", "numpy")  # what trials use; Ray compares its own version
LEAST_BYTES = GIB  # of memory, and of the disk with temporary files: a process that trains takes more
REMEDIES = {
    "memory": "end what else runs there, or give its container more",
    "temporary files": "make room on the disk where Ray keeps its files, or give RAY_TMPDIR another one",
}
LITTLE_SHARED_MEMORY = 2**27  # Docker gives a container 64 MiB; Ray then keeps what is shared on the disk
GO_ON = (
    "(`--set machines.unfit=leave_out`, or that field in the study, has the others train without, also in a "
    "search that goes on by `tunebook search STUDY --resume`)"
)
SLOW_READING = 0.25  # of the other machines' rate; a few dozen images say no more


@dataclass(frozen=True)
class CheckedMachine:
    """One machine of a cluster, with what it has answered."""

    node: str  # Ray's id
    name: str  # with its address
    look: Look | None = None  # None where it did not answer
    images_per_second: float | None = None  # read and decoded by one thread; None where images travel
    faults: tuple[str, ...] = ()  # each keeps it from training: what is wrong, and what to do
    remarks: tuple[str, ...] = ()  # what else a person should know

    def tree(self) -> dict[str, Any]:
        """Return the machine as plain data."""
        look = (
            {} if self.look is None else {"free": dict(self.look.free), "packages": dict(self.look.packages)}
        )
        found = {"faults": list(self.faults), "remarks": list(self.remarks)}
        return {"machine": self.name, "images_per_second": self.images_per_second, **look, **found}

    @property
    def left_out(self) -> LeftOut:
        """What is noted of it where it cannot train."""
        return LeftOut(where=self.name, why=self.why)

    @property
    def why(self) -> str:
        """What keeps it from training, in words."""
        return "; ".join(self.faults)


def fit_to_train(prepared: Prepared, machines: Machines | None) -> Prepared:
    """Return what was prepared for the machines that can train: this one, or those of a cluster that do.

    Raises UserError where none can, and for a machine of a cluster that cannot, unless the study has such
    machines left out.
    """
    trial, study = prepared.per_trial, prepared.study
    if machines is None:
        _check_this_machine(trial, prepared.space, prepared.bench.say)
        return prepared
    seen = machines.answers(trial, compiles=may_compile(prepared.space))
    none_can = all(each.faults for each in seen)
    if none_can or study.machines.unfit == "refuse":
        refuse_unfit(seen, others_can=not none_can)
    if not machines.excluded:
        return prepared
    hardware = machines.hardware()
    try:
        trial = per_trial(study.resources, hardware, gpus=trial.gpus, cpus=trial.cpus)
    except StudyError as error:
        raise UserError(f"{error}\n{_named(seen)}") from None
    machines.trial = trial  # smaller machines may hold it: they are asked like those that join
    return replace(prepared, per_trial=trial, concurrent=concurrent_trials(study.concurrent, trial, hardware))


def _check_this_machine(trial: PerTrial, space: Space, say: Say) -> None:
    """Raise UserError where this machine cannot train a space's trials, and say it if they train without a
    GPU since PyTorch cannot use its driver."""
    from trainable.training.devices import driver_problem, problem_here

    if (problem := problem_here("cuda" if trial.gpus else "cpu", may_compile(space))) is not None:
        raise UserError(f"this machine: {problem}")
    if not trial.gpus and (problem := driver_problem()) is not None:
        say(f"trials train without a GPU: {problem}")


def may_compile(space: Space) -> bool:
    """Say whether a trial's network may be compiled."""
    return any(space.may_have("loop.compile", each) for each in COMPILED)


class Machines:
    """The machines of a cluster that a search has joined: each is asked what it is like before it trains.

    `trial` is what each worker of a trial gets. The first questions are sent at once, and nothing is waited
    for.
    """

    def __init__(self, trial: PerTrial, question: Question) -> None:
        self.trial, self._question = trial, question
        self._asked: dict[str, _Asked] = {}
        self._seen: dict[str, CheckedMachine] = {}
        self._sample: Any = None  # Ray's reference to the sample
        self._compiles = False
        self._told: set[str] = set()
        self._asked_again: set[str] = set()
        self._stopped: set[str] = set()  # machines on which trials failed
        self._gone: set[str] = set()  # machines that went before they answered
        # the machines that are there, by Ray's ids, as they were last counted
        self.there: frozenset[str] = frozenset()
        # the machines, by Ray's ids, that could not train at the start: Ray places nothing there
        self.excluded: frozenset[str] = frozenset()
        self._ask_new()

    def send_sample(self, data: DataSet, *, refuse: bool = True) -> None:
        """Have the machines read some of the images, unless these travel with the trials. With `refuse` it
        raises UserError for a machine that has already answered, and cannot train."""
        import ray

        if refuse:
            looked = [each for each in self._asked.values() if each.has_looked]
            refuse_unfit([each.seen(self._here, self._question) for each in looked])
        if (sample := DataSample.of(data)) is not None:
            self._sample = ray.put(sample)
            for asked in self._asked.values():
                asked.send(self._sample)

    def answers(self, trial: PerTrial, *, compiles: bool) -> tuple[CheckedMachine, ...]:
        """Return every machine that can hold a worker of such a trial, once all have answered. Those that
        cannot compile are unfit if trials may be compiled."""
        self.trial, self._compiles = trial, compiles
        self._ask_new()
        with stage(f"asking {counted(len(self._asked), 'machine')} whether they can train"):
            until = time.monotonic() + ANSWER_SECONDS
            for node in tuple(self._asked):
                self._hear(node, max(1.0, until - time.monotonic()))
        self._seen = {each.node: each for each in _compared(self._seen.values())}
        self.excluded = frozenset(each.node for each in self._seen.values() if each.faults)
        return tuple(self._seen.values())

    def hardware(self) -> Hardware:
        """Return the machines that train, and those that are being asked; ask those that have joined."""
        nodes = self._ask_new()
        for node, asked in tuple(self._asked.items()):
            if asked.has_answered or asked.is_overdue:
                self._hear(node, 0.0)
                self._ask_again(node)
        return hardware_of(each for each in nodes if self.may_train(each["NodeID"]) is not False)

    def too_small(self) -> list[str]:
        """Return the machines that hold no worker of a trial; they are not asked."""
        return [
            on_machine(each["NodeManagerHostname"], each["NodeManagerAddress"])
            for each in alive_nodes()
            if not machine_of(each["Resources"]).fits(self.trial)
        ]

    def may_train(self, node: str) -> bool | None:
        """Say whether a machine may train; None while it has not answered. What ranks on others lose by one
        that has gone is found when they meet, so there it is True."""
        if node in self._gone:
            return True
        found = self._seen.get(node)
        return None if found is None else not found.faults and node not in self._stopped

    @property
    def none_trains(self) -> bool:
        """Whether no machine that may train, or is being asked, is there."""
        known = self.there & (self._asked.keys() | self._seen.keys())
        return all(self.may_train(node) is False for node in known)

    def stop_training_on(self, node: str) -> None:
        """Count a machine no more among those that train, for as long as this driver runs."""
        self._stopped.add(node)

    def newly_heard(self) -> list[CheckedMachine]:
        """Return the machines that have answered since the last call."""
        new = [each for each in self._seen.values() if each.node not in self._told]
        self._told.update(each.node for each in new)
        return new

    @property
    def left_out(self) -> list[LeftOut]:
        """The machines on which no trial trains, since they cannot."""
        return [each.left_out for each in self._seen.values() if each.faults and self.keeps_away(each)]

    def keeps_away(self, machine: CheckedMachine) -> bool:
        """Say whether no trial trains on a machine that cannot.

        Ranks may be spread over several machines, and one that joined later may be among them.
        """
        return machine.node in self.excluded or self.trial.workers == 1 or self.trial.together

    @cached_property
    def _here(self) -> Look:
        return look(replace(self._question, device="cpu", code=NOTHING), "head")

    def _ask_new(self) -> list[dict[str, Any]]:
        """Ask the machines that have joined, and return all that are there."""
        nodes = alive_nodes()
        self.there = frozenset(str(each["NodeID"]) for each in nodes)
        for node in nodes:
            name, can_hold = node["NodeID"], machine_of(node["Resources"]).fits(self.trial)
            if can_hold and name not in self._seen and name not in self._asked:
                self._asked[name] = _Asked(node, self._question)
                if self._sample is not None:
                    self._asked[name].send(self._sample)
        return nodes

    def _hear(self, node: str, seconds: float) -> None:
        """Take in what a machine answers within so many seconds; one that has gone is forgotten."""
        asked = self._asked.pop(node)
        seen = asked.seen(self._here, self._question, compiles=self._compiles, seconds=seconds)
        if seen.look is not None or node in {each["NodeID"] for each in alive_nodes()}:
            self._seen[node] = seen
        else:
            self._gone.add(node)

    def _ask_again(self, node: str) -> None:
        """Ask a machine that joined later once more, if it did not answer: Ray may have ended the process, or
        packages come slowly over its network."""
        if node in self._seen and self._seen[node].look is None and node not in self._asked_again:
            self._asked_again.add(node)
            del self._seen[node]
            self._ask_new()

    @property
    def in_doubt(self) -> bool:
        """Whether Ray may place a process on a machine that has not answered yet, or cannot train."""
        return bool(self._asked) or any(
            each.faults and each.node not in self.excluded for each in self._seen.values()
        )


class _Asked:
    """A machine that was asked, by an actor there that takes nothing which trials use."""

    def __init__(self, node: Mapping[str, Any], question: Question) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._node = str(node["NodeID"])
        self._name = on_machine(node["NodeManagerHostname"], node["NodeManagerAddress"])
        there = NodeAffinitySchedulingStrategy(self._node, soft=False)
        self._looker = ray.remote(num_cpus=0, scheduling_strategy=there)(Looker).remote()
        self._look = self._looker.look.remote(question, self._node)
        self._read: Any = None
        self._began = time.monotonic()

    def send(self, sample: Any) -> None:
        """Have the machine read a sample of the images, by Ray's reference."""
        self._read = self._looker.read.remote(sample)

    @property
    def has_looked(self) -> bool:
        return _is_there(self._look)

    @property
    def has_answered(self) -> bool:
        return _is_there(self._look if self._read is None else self._read)

    @property
    def is_overdue(self) -> bool:
        return time.monotonic() - self._began > ANSWER_SECONDS

    def seen(
        self, here: Look, question: Question, *, compiles: bool = False, seconds: float = ANSWER_SECONDS
    ) -> CheckedMachine:
        """Return the machine with all that it has been asked; wait for it for so many seconds."""
        import ray
        from ray.exceptions import RayError

        seen = CheckedMachine(self._node, self._name)
        try:
            found: Look = ray.get(self._look, timeout=seconds)
            read = ReadThere() if self._read is None else ray.get(self._read, timeout=seconds)
        except RayError as error:  # the machine has gone, hangs, or has no such tunebook
            return replace(seen, faults=(_unanswered(error),))
        faults = (*_faults(found, here, question, compiles=compiles), *filter(None, [read.problem]))
        seen = replace(seen, look=found, images_per_second=read.images_per_second, faults=faults)
        return replace(seen, remarks=tuple(_remarks(found, self._clock_offset())))

    def _clock_offset(self) -> float:
        """Return by how many seconds the machine's clock is ahead of this one's, at least.

        It is 0 where the machine does not say so at once.
        """
        import ray
        from ray.exceptions import RayError

        began = time.time()
        try:
            there: float = ray.get(self._looker.clock.remote(), timeout=SOON)
        except RayError:
            return 0.0
        return there - min(max(there, began), time.time())


def refuse_unfit(machines: Sequence[CheckedMachine], *, others_can: bool = True) -> None:
    """Raise UserError that names the machines that cannot train, and why; and how others train without."""
    if lines := _named(machines):
        raise UserError(f"{lines}\n{GO_ON}" if others_can else lines)


def _named(machines: Sequence[CheckedMachine]) -> str:
    return "\n".join(f"machine {each.name}: {each.why}" for each in machines if each.faults)


@contextmanager
def asked(
    study: Study,
    hardware: Hardware,
    storage: str,
    code: PickledCode = NOTHING,
    facts: Facts | None = None,
) -> Iterator[Machines]:
    """Ask the machines of the cluster that was joined, for the block.

    With `facts` a trial gets what the search has decided. Each machine is seen to share a folder in the
    storage, of which nothing is left after the block. Raises UserError where it cannot be written to.
    """
    decided = (None, None) if facts is None else (facts.gpus, facts.cpus)
    trial, token = per_trial(study.resources, hardware, *decided), secrets.token_hex(16)
    with _shared(storage, f"{FOLDER}{token[:8]}", token) as shared:
        yield Machines(trial, Question(storage, shared, token, "cuda" if trial.gpus else "cpu", code))


@contextmanager
def _shared(storage: str, name: str, token: str) -> Iterator[str]:
    """Give the block a folder with a token that all machines should see, and that is locked, or its URI."""
    if is_uri(storage):
        store = Store(storage)
        store.at(name).write(TOKEN, token.encode())
        try:
            yield store.at(name).uri
        finally:
            with suppress(StoreError):  # what the search came to counts more
                store.remove(name)
        return
    folder = Path(storage) / name
    _remove_left_over(Path(storage))
    with locked(folder):
        (folder / TOKEN).write_bytes(token.encode())
        yield str(folder)


def _remove_left_over(storage: Path) -> None:
    """Remove the folders of drivers that were killed."""
    for each in storage.glob(f"{FOLDER}*"):
        with suppress(UserError):
            if not is_locked(each):
                shutil.rmtree(each, ignore_errors=True)


def _faults(found: Look, here: Look, question: Question, *, compiles: bool) -> Iterator[str]:
    """Yield what keeps a machine from training, and what to do."""
    if found.files != here.files:
        ours, its = (each.packages.get("tunebook", "") for each in (here, found))
        other = f"is not the head's {ours}" if its != ours else "has other files than the head's"
        yield f"its tunebook {its} {other}: install the same on all machines"
    for name in ON_WORKERS:
        there, known = found.packages.get(name, "missing"), here.packages.get(name)
        # 2.15.0+cpu on a head without a GPU is the same version as 2.15.0+cu130
        if known is not None and there.partition("+")[0] != known.partition("+")[0]:
            yield f"its {name} is {there} and the head's {known}: install the same on all machines"
    if found.device:
        yield found.device
    if found.compiler and compiles:
        yield found.compiler
    if found.code:
        yield found.code
    if found.shared:
        yield _not_shared(question, found.shared)
    elif not _is_written_back(question, found):
        yield _not_shared(question, "the head does not see what it writes")
    for name, remedy in REMEDIES.items():
        if (free := found.free.get(name, GIB)) < LEAST_BYTES:
            yield f"{free / GIB:.1f} GiB are free for {name}, and a process that trains takes more: {remedy}"


def _not_shared(question: Question, what: str) -> str:
    if is_uri(question.storage):
        return (
            f"it does not share {question.storage} with the head: {what}; give it the head's keys and network"
        )
    return (
        f"it does not share the storage {question.storage} with the head: {what}; mount one folder with "
        "locks there on all machines, or let storage be an object store (s3://...)"
    )


def _is_written_back(question: Question, found: Look) -> bool:
    try:
        if is_uri(question.shared):
            seen = Store(question.shared).read(found.written)
        else:
            seen = (Path(question.shared) / found.written).read_bytes()
    except (OSError, StoreError):
        return False
    return seen == question.token.encode()


def _remarks(found: Look, offset: float) -> Iterator[str]:
    if abs(offset) > CLOCK_SECONDS:
        ahead = "ahead of" if offset > 0 else "behind"
        yield f"its clock is {abs(offset):.0f} s {ahead} the head's: set both by the network (chrony, ntp)"
    if (shared := found.free.get("/dev/shm")) is not None and shared < LITTLE_SHARED_MEMORY:
        yield (
            f"{shared / 2**20:.0f} MiB of shared memory are free, so Ray keeps images on the disk: give its "
            "container more, 8 GiB or so"
        )


def _compared(machines: Iterable[CheckedMachine]) -> Iterator[CheckedMachine]:
    """Yield the machines; those that read far slower than the others say so."""
    machines = tuple(machines)
    for each in machines:
        others = [
            other.images_per_second
            for other in machines
            if other is not each and other.images_per_second is not None
        ]
        rate = each.images_per_second
        if rate is None or not others or rate > SLOW_READING * (usual := median(others)):
            yield each
            continue
        slow = (
            f"it reads {rate:,.0f} images a second and the others {usual:,.0f}: look at its disk and network"
        )
        yield replace(each, remarks=(*each.remarks, slow))


def _unanswered(error: Exception) -> str:
    if "No module named" in str(error) or "has no attribute" in str(error):
        return f"it has no tunebook like the head's ({str(error).splitlines()[-1].strip()}): install the same"
    return f"it does not answer ({type(error).__name__}: {first_line(error)}): look at Ray's logs there"


def _is_there(answer: Any) -> bool:
    import ray

    ready, _ = ray.wait([answer], timeout=0)
    return bool(ready)
