"""The workers of a master: those it starts, those that join, those that are gone."""

from collections.abc import Callable, Iterator
from time import monotonic

import gevent
import msgspec
from gevent import subprocess

from harness.errors import BakeoffError, ConfigError, StoreWriteError
from harness.load.distributed import messages as m
from harness.load.distributed.handed_over import Crew, HandedOver
from harness.load.distributed.member import Member
from harness.load.job import LoadJob
from harness.load.play.locust_users import MasterLink
from harness.load.wire import stamps

_POLL_S = 0.02
_START_S = 60.0  # what a worker of ours may take to start; two seconds are usual
_CLOSE_S = 10.0
_DISMISS_S = 0.2  # until words to other machines have left this process
_EVERYWHERE = {"*", "0.0.0.0", "::", "[::]"}  # noqa: S104 - compared with, not bound to


class Workers:
    """All workers of one load, local ones first.

    Args:
        job: what holds for all levels; `workers` in all, `remote_workers` of them from elsewhere.
        files: where it is noted who takes part.
        say: tells the parent.
        on_message: what is done with what a member says.
    """

    def __init__(
        self,
        job: LoadJob,
        files: HandedOver,
        *,
        say: Callable[..., None],
        on_message: Callable[[Member, m.Message], None],
    ) -> None:
        self._job = job
        self._say = say
        self._on_message = on_message
        local = job.workers - job.remote_workers
        self._members = [
            Member(number=number, is_remote=number >= local) for number in range(job.workers)
        ]
        host, _, port = job.master_bind.rpartition(":")
        if not job.remote_workers:
            host, port = "127.0.0.1", "0"
        self._link = MasterLink(host.strip("[]"), int(port), self._receive)
        self._address = f"{host}:{self._link.port}"
        self._note_crew(files)
        self._began_s = monotonic()
        local_host = "127.0.0.1" if host in _EVERYWHERE else host
        for member in self._members[:local]:
            member.start(f"{local_host}:{self._link.port}")

    @property
    def alive(self) -> list[Member]:
        """All that are not lost."""
        return [member for member in self._members if member.lost is None]

    @property
    def lost(self) -> list[Member]:
        """All that are lost."""
        return [member for member in self._members if member.lost is not None]

    def wait_for_all(self, check: Callable[[], None]) -> None:
        """Wait until all are there and have their job; ConfigError if they do not come in time.

        `check`: asked again and again; may raise.
        """
        has_said = False
        while not all(member.is_ready for member in self.alive):
            gevent.sleep(_POLL_S)
            check()
            self._check_started()
            missing = self._job.workers - sum(member.name is not None for member in self._members)
            waited_s = monotonic() - self._began_s
            if not has_said and self._missing_remote:
                has_said = True
                command = f"bakeoff worker --master {self._address}"
                self._say(event="waiting", message=f"waiting for {missing} workers: {command}")
            if self._missing_remote and waited_s > self._job.worker_wait_s:
                raise ConfigError(self._too_few())
            if not self._missing_remote and waited_s > _START_S + self._job.worker_wait_s:
                raise BakeoffError("the workers did not become ready")

    def send(self, member: Member, message: m.Message) -> None:
        """Send to one worker."""
        if member.name is not None:
            self._link.send(member.name, m.encoded(message))

    def tell(self, message: m.Message) -> None:
        """Send to all workers, also to one that was lost: it may only have been cut off."""
        for member in self._members:
            self.send(member, message)

    def dismiss(self) -> None:
        """Have all end now; what they still have to say is not waited for."""
        self.tell(m.Abort())
        self.tell(m.Close())
        gevent.sleep(_DISMISS_S)

    def gone(self) -> Iterator[tuple[Member, str]]:
        """Those that were there and no longer are, and how that was seen."""
        for member in self.alive:
            status = member.process.poll() if member.process is not None else None
            if member.is_closed or not member.is_ready:
                continue
            if status is not None:
                yield member, f"ended with {status}"
            elif member.name is not None and self._link.is_missing(member.name):
                yield member, "was not heard for 4 s"

    def end(self, check: Callable[[], None]) -> None:
        """Wait until all have closed what they had open, then kill what is left of ours.

        `check`: asked again and again; may raise.
        """
        until_s = monotonic() + _CLOSE_S
        while monotonic() < until_s and not all(member.is_closed for member in self.alive):
            gevent.sleep(_POLL_S)
            check()
        for member in self._members:
            if member.process is not None and member.process.poll() is None:
                try:
                    member.process.wait(timeout=1.0)
                except subprocess.TimeoutExpired:
                    member.process.kill()

    @property
    def _missing_remote(self) -> int:
        return sum(member.is_remote and member.name is None for member in self._members)

    def _too_few(self) -> str:
        wanted, missing = self._job.remote_workers, self._missing_remote
        return (
            f"load.remote_workers={wanted}: {wanted - missing} joined within "
            f"load.worker_wait_s={self._job.worker_wait_s:g}; start the others with: "
            f"bakeoff worker --master {self._address}"
        )

    def _check_started(self) -> None:
        for member in self._members:
            if member.process is not None and member.process.poll() is not None:
                raise BakeoffError(
                    f"{member.title} ended with {member.process.poll()} at its start"
                )

    def _note_crew(self, files: HandedOver) -> None:
        zero_s = self._job.zero_s
        crew = Crew(
            zero_s=zero_s,
            started_at_s=stamps.wall_now() - (monotonic() - zero_s),
            workers=self._job.workers,
            remote_workers=self._job.remote_workers,
        )
        try:
            files.write_crew(crew)
        except OSError as error:
            raise StoreWriteError(f"{files.folder}: cannot be written: {error.strerror}") from error

    def _receive(self, name: str, data: bytes) -> None:
        try:
            message = m.decoded(data)
        except msgspec.DecodeError:  # none of ours: whatever it is, it must not stop the load
            return
        member = next((one for one in self._members if one.name == name), None)
        if isinstance(message, m.Hello):
            self._welcome(name, message)
        elif member is not None and member.lost is None:
            self._on_message(member, message)

    def _welcome(self, name: str, hello: m.Hello) -> None:
        ours = m.our_version()
        if hello.version != ours:
            reason = (
                f"bakeoff {hello.version} on {hello.host} cannot work for a master of bakeoff "
                f"{ours}; install the same version on both machines"
            )
            self._link.send(name, m.encoded(m.Refused(reason=reason)))
            self._say(event="worker", message=reason)
            return
        member = self._seat(hello.place)
        if member is None:
            reason = f"the master has all its {self._job.workers} workers already"
            self._link.send(name, m.encoded(m.Refused(reason=reason)))
            return
        member.name, member.host = name, hello.host
        self._link.send(name, m.encoded(m.Welcome(worker=member.number, job=self._job)))
        if member.is_remote:
            self._say(event="worker", message=f"{member.title} has joined")

    def _seat(self, place: int | None) -> Member | None:
        if place is not None:
            return self._members[place]
        free = (one for one in self._members if one.is_remote and one.name is None)
        return next(free, None)
