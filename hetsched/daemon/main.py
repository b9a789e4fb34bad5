"""`hetsched serve`: start in order, serve, stop in order.

    lock → tokens → listen (503 to everybody) → store: identity, new epoch → snapshot → frames → nodes expected → ready
                                                  └ another daemon leads: stand by ┘

The listener opens early, so that a port in use is found before an older daemon is deposed, and so that a recovery answers 503 instead of
nothing; the address is printed and published only once ready, or standing by. SIGTERM: nothing new is taken, the turns under way become
durable and are answered, the state is snapshotted, the lead given up, the store closed. No task is ever stopped by it.

A leader that was deposed, whose store has another primary now, or that has handed over, begins again at the store, in the same process:
what is in its memory may be ahead of what anybody was told, so all of it is dropped and the journal read. *Why not exit:* measured, it
stands by again at once and not after a start of Python and the service manager's pause, and it needs no service manager.

A journal that cannot be read to its end is no reason to die and be started again for ever: see safe.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import uvloop

from hetsched.api.app import Listener
from hetsched.api.desk import Desk
from hetsched.config import Config, to_mapping
from hetsched.daemon.auth import Token, Tokens, load_tokens
from hetsched.daemon.binding import Binding, bind_to, host_names
from hetsched.daemon.cells import Office
from hetsched.daemon.daemon import Daemon
from hetsched.daemon.lock import DataDir
from hetsched.daemon.recover import Followed, Recovered, plug_ins, recover_prefix, take_over
from hetsched.daemon.safe import SafeMode, safe_mode
from hetsched.daemon.signals import Signals, Supervisor
from hetsched.daemon.standby import Standby
from hetsched.errors import ConfigError, Deposed, NotFound, StoreLost, Unavailable
from hetsched.store import (
    FileDamaged,
    JournalCorrupt,
    Leader,
    Led,
    Moved,
    Regressed,
    Store,
    open_post,
    open_store,
    without_secrets,
)
from hetsched.store import Standby as StoreStandby
from hetsched.store.ending import end
from hetsched.store.prefix import open_prefix

if TYPE_CHECKING:
    from hetsched.policy.scorers import Scorers

log = logging.getLogger("hetsched.daemon")

EXIT_OK, EXIT_FAULT, EXIT_TRY_AGAIN, EXIT_FIX_ME = 0, 70, 75, 78
"""sysexits.h: 75 = starting again may help (the store was lost), 78 = a person has to change something first.

Deposed is 78 where the store is the daemon's own: a supervisor that started it again would have two daemons depose each other for ever.
"""


def serve(
    config: Config,
    data_dir: Path,
    *,
    listen: str | None = None,
    store_url: str | None = None,
    insecure: bool = False,
) -> int:
    """Run the daemon until SIGTERM; the exit code. `listen` and `store_url` go before the configuration's."""
    _log_to_stderr(config.server.log_level)
    _allow_many_connections()
    try:
        service = Service(config, data_dir, listen or config.server.listen, store_url or config.store.url, insecure)
        return uvloop.run(service.run())
    except (ConfigError, JournalCorrupt, Deposed) as error:
        print(f"hetsched: {error}", file=sys.stderr)
        return EXIT_FIX_ME
    except StoreLost as error:
        print(f"hetsched: {error}", file=sys.stderr)
        return EXIT_TRY_AGAIN
    except Exception:
        log.exception("the daemon failed; everything acknowledged is in the journal")
        return EXIT_FAULT


class Service:
    """One run of the daemon."""

    def __init__(self, config: Config, data_dir: Path, listen: str, store_url: str, insecure: bool) -> None:
        self._config = config
        self._store_url = store_url
        self._data_dir = data_dir
        server = config.server
        self._binding: Binding = bind_to(
            listen, cert=server.tls_cert, key=server.tls_key, insecure=insecure or server.insecure
        )
        self._supervisor = Supervisor()
        self._failovers = Counter[str]()

    async def run(self) -> int:
        """Everything, in order."""
        data = DataDir(self._data_dir)
        try:
            desk = self._desk()
            listener = self._listener(desk)
            with Signals(reload=lambda: self._reload_tokens(desk)) as signals:
                url = await self._listen(listener)
                try:
                    return await self._with_store(desk, listener, signals, data, url)
                finally:
                    await listener.stop()
        finally:
            self._supervisor.stopping()
            data.release()

    # ------------------------------------------------------------------ starting

    def _desk(self) -> Desk:
        if self._binding.insecure:
            _warn_in_red(f"INSECURE: tokens cross the network in clear on {self._binding.host}")
        return Desk(
            self._config,
            self._tokens(),
            hosts=host_names(self._binding, self._config.server.allowed_hosts),
            insecure=self._binding.insecure,
        )

    def _tokens(self) -> Tokens:
        configured = [
            Token(name=token.name, sha256=token.sha256, scopes=token.scopes, queues=token.queues)
            for token in self._config.auth.tokens
        ]
        shared = self._config.auth.directory
        return load_tokens(self._data_dir, configured, Path(shared) if shared else None)

    def _reload_tokens(self, desk: Desk) -> None:
        try:
            desk.tokens = self._tokens()
            desk.changed()
            log.info("tokens read again")
        except (ConfigError, OSError) as error:
            log.error("tokens stay as they are: %s", error)

    def _listener(self, desk: Desk) -> Listener:
        server = self._config.server
        if server.workers == 0:
            return Listener(desk, drain_s=server.drain_timeout)
        from hetsched.front.crew import Crew

        return Crew(desk, drain_s=server.drain_timeout, size=server.workers)

    async def _listen(self, listener: Listener) -> str:
        binding = self._binding
        try:
            port = await listener.start(binding.host, binding.port, binding.tls)
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                why = "somebody listens there already; --listen HOST:PORT names another place, port 0 any free one"
            raise ConfigError(f"cannot listen on {binding.host}:{binding.port}: {why}") from error
        return binding.url(port)

    # ------------------------------------------------------------------ lives

    async def _with_store(self, desk: Desk, listener: Listener, signals: Signals, data: DataDir, url: str) -> int:
        """One life after the other until one ends with an exit code."""
        advertised = self._config.server.advertise or self._binding.reachable(url)
        name = self._config.server.name or socket.gethostname()
        scorers = plug_ins(self._config)
        async with self._office(desk):
            while True:
                store = await open_store(self._store_url, self._data_dir, self._config, name=name, address=advertised)
                data.publish_config(self._config_in_effect())
                try:
                    code = await self._live(Life(store, scorers, desk, listener, signals, data, url, advertised))
                    if code is not None:
                        return code
                finally:
                    await store.close()
                desk.recover()

    @contextlib.asynccontextmanager
    async def _office(self, desk: Desk) -> AsyncIterator[None]:
        """Of a daemon of a cell."""
        if not self._config.store.cell:
            yield
            return
        office = desk.cells = Office(self._config, open_post(self._store_url, self._data_dir, self._config))
        office.start()
        try:
            yield
        finally:
            await office.close()

    async def _live(self, life: Life) -> int | None:
        """Stand by if another daemon leads, lead when it is our turn. None: begin again."""
        followed: Followed | None = None
        waited = False
        while True:
            began_s = time.monotonic()
            try:
                found = await self._recover(life, followed)
                break
            except Led as led:
                waited = True
                stopped, followed = await self._stand_by(life, led.leader, followed)
                if stopped:
                    return EXIT_OK
            except JournalCorrupt as error:
                if followed is not None:
                    log.error("%s; reading all of the journal", error)
                    return None
                if isinstance(error, FileDamaged):
                    return await self._show_file_prefix(error, life)
                return await self._know_nothing(self._safe_mode(error, ""), life)
        life.desk.recover()
        self._failovers["took_over"] += waited
        safe = None if found.damage is None else self._safe_mode(found.damage, found.opened.frames.at.id)
        daemon = self._daemon(found, life.store, life, safe)
        at = found.opened.frames.at.id
        log.info("recovered in %.3f s, epoch %d, journal at %s", time.monotonic() - began_s, daemon.epoch, at)
        try:
            return await (self._lead(daemon, life) if safe is None else self._show_prefix(daemon, life))
        except (Deposed, Moved, Regressed) as error:
            if not life.store.shared:
                raise
            self._failovers[_CHANGES[type(error)]] += 1
            log.warning("%s; beginning again at the store", error)
            return None
        finally:
            daemon.planner.close()

    def _daemon(self, found: Recovered, store: Store, life: Life, safe: SafeMode | None) -> Daemon:
        return Daemon(
            self._config,
            found.scheduler,
            store,
            cluster_id=found.opened.cluster_id,
            url=life.advertised,
            insecure=self._binding.insecure,
            safe=safe,
            failovers=self._failovers,
            fronts=life.listener.fronts,
        )

    async def _recover(self, life: Life, followed: Followed | None) -> Recovered:
        """All there is, in an epoch of ours. Raises Led, JournalCorrupt."""
        if followed is None:
            return await recover_prefix(self._config, life.store, life.scorers)
        return await take_over(life.store, followed)

    async def _stand_by(self, life: Life, leader: Leader, followed: Followed | None) -> tuple[bool, Followed | None]:
        """Follow until it may be our turn: (told to stop, what was followed)."""
        standby = Standby(self._config, life.store, life.scorers, followed, leader, self._failovers)
        life.desk.stand_by(standby)
        following = asyncio.create_task(standby.follow(), name="following")
        try:
            await self._until_up(life, following)
            life.data.publish_url(life.url)
            if followed is None:
                print(f"standing by at {life.url}", flush=True)
            self._supervisor.ready(f"standing by at {life.url}")
            await self._until_stopped(life, following)
            return (False, following.result()) if following.done() else (True, None)
        finally:
            await end(following)
            standby.close()

    def _config_in_effect(self) -> dict[str, Any]:
        """With the store as it was named, without a password in it; tokens stay where they are."""
        tree = to_mapping(self._config)
        tree["store"]["url"] = without_secrets(self._store_url)
        tree["auth"] = to_mapping(Config())["auth"]
        return tree

    # ------------------------------------------------------------------ safe mode

    def _safe_mode(self, damage: JournalCorrupt, prefix: str) -> SafeMode:
        safe = safe_mode(damage, prefix, self._store_url, self._data_dir)
        log.error("%s", safe.story)
        _warn_in_red(safe.refusal)
        return safe

    async def _show_prefix(self, daemon: Daemon, life: Life) -> int:
        """Answer reads and keep leases, until told to stop or until another daemon leads."""
        life.desk.open(daemon)
        await self._announce(life, "safe mode")
        await self._until_stopped(life, daemon.store.failed)
        life.desk.close()
        daemon.events.close()
        daemon.links.close()
        if daemon.store.failed.done():
            raise daemon.store.failed.result()
        return EXIT_OK

    async def _show_file_prefix(self, damage: FileDamaged, life: Life) -> int:
        """The same where the journal server does not load its own file: over a copy of its whole part."""
        try:
            store = await open_prefix(self._data_dir, self._config)
        except (ConfigError, StoreLost, NotFound) as error:
            log.error("%s", error)
            return await self._know_nothing(self._safe_mode(damage, ""), life)
        try:
            found = await recover_prefix(self._config, store, life.scorers)
            daemon = self._daemon(found, store, life, self._safe_mode(damage, found.opened.frames.at.id))
            try:
                return await self._show_prefix(daemon, life)
            finally:
                daemon.planner.close()
        except JournalCorrupt as error:
            log.error("%s", error)
            return await self._know_nothing(self._safe_mode(damage, ""), life)
        finally:
            await store.close()

    async def _know_nothing(self, safe: SafeMode, life: Life) -> int:
        """Say why, until told to stop."""
        life.desk.know_nothing(safe)
        await self._announce(life, "safe mode")
        await self._until_stopped(life)
        life.desk.close()
        return EXIT_OK

    # ------------------------------------------------------------------ leading

    async def _lead(self, daemon: Daemon, life: Life) -> int | None:
        turning = asyncio.create_task(daemon.turns.run(), name="turn loop")
        daemon.expect_nodes()
        office = life.desk.cells
        if office is not None:
            await office.lead(daemon)
        life.desk.open(daemon)
        asked = daemon.handover.asked
        await self._announce(life, "serving", turning, daemon.store.failed)
        await self._until_stopped(life, turning, daemon.store.failed, asked)
        successor = asked.result() if asked.done() else None
        if successor is None:
            life.desk.close()
        else:
            life.desk.close(f"handing over to {successor.name}", successor.url)
        if office is not None:
            await office.rest()
        daemon.events.close()
        daemon.links.close()
        if turning.done() or daemon.store.failed.done():
            return await self._fail(daemon, turning)
        if successor is None:
            self._supervisor.stopping()
            await self._finish(daemon, turning, life.listener)
            return EXIT_OK
        await self._hand_over(daemon, turning, successor)
        return None

    async def _until_up(self, life: Life, *ends: asyncio.Future[Any]) -> None:
        """Until front ends are there, where there are any, or until one of these."""
        up = asyncio.create_task(life.listener.up(), name="until front ends are there")
        await self._until_stopped(life, up, *ends)
        up.cancel()

    async def _announce(self, life: Life, status: str, *ends: asyncio.Future[Any]) -> None:
        """To clients of this machine, to whoever started us, to the service manager; unless one of `ends` comes before that."""
        await self._until_up(life, *ends)
        if any(end.done() for end in ends):
            return
        life.data.publish_url(life.url)
        gc.freeze()  # what is there now stays: no collector looks through it while tasks wait
        print(f"listening on {life.url}", flush=True)
        self._supervisor.ready(f"{status} on {life.url}")

    async def _until_stopped(self, life: Life, *ends: asyncio.Future[Any]) -> None:
        """By a signal, or by one of these."""
        stopping = asyncio.create_task(life.signals.stop.wait(), name="until stopped")
        await asyncio.wait([stopping, *ends], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

    async def _fail(self, daemon: Daemon, turning: asyncio.Task[None]) -> int:
        """The journal is lost or the scheduler broke: raise what it was."""
        daemon.handover.done(Unavailable("the daemon stopped before it could hand over"))
        if not turning.done():
            turning.cancel()
        await asyncio.gather(turning, return_exceptions=True)
        if daemon.store.failed.done():
            raise daemon.store.failed.result()
        turning.result()
        return EXIT_FAULT

    async def _hand_over(self, daemon: Daemon, turning: asyncio.Task[None], successor: StoreStandby) -> None:
        """What was taken becomes durable and is answered; then the standby may open the next epoch."""
        log.info("handing over to %s at %s", successor.name, successor.url)
        if not await self._drained(daemon, turning):
            log.warning("the hand-over goes on without what the store did not confirm; its callers are told so")
        try:
            async with asyncio.timeout(self._config.server.drain_timeout):
                await daemon.store.hand_over(successor)
        except (TimeoutError, StoreLost) as error:
            daemon.handover.done(Unavailable(f"the store did not take the hand-over: {error or 'no answer'}"))
            return
        self._failovers["handed_over"] += 1
        daemon.handover.done()

    async def _finish(self, daemon: Daemon, turning: asyncio.Task[None], listener: Listener) -> None:
        log.info("stopping; tasks go on without the daemon")
        drained = await self._drained(daemon, turning)
        if drained and not daemon.store.standbys():
            await listener.stop()
            await daemon.snapshots.last()
        with contextlib.suppress(StoreLost, TimeoutError):
            async with asyncio.timeout(1.0):  # else the lease runs out by itself
                await daemon.store.hand_over(None)

    async def _drained(self, daemon: Daemon, turning: asyncio.Task[None]) -> bool:
        """The turns under way end; False where the store does not confirm them in time."""
        daemon.turns.close()
        drain_s = self._config.server.drain_timeout
        done, _ = await asyncio.wait({turning}, timeout=drain_s)
        if not done:
            log.warning("the store did not confirm the last frames within %g s; their callers are told so", drain_s)
            turning.cancel()
            await asyncio.gather(turning, return_exceptions=True)
        return bool(done) and turning.exception() is None


_CHANGES: dict[type[StoreLost], str] = {Deposed: "deposed", Moved: "store_moved", Regressed: "store_regressed"}


class Life(NamedTuple):
    """What the stages of one life share. `url`: where we listen, `advertised`: where others reach us."""

    store: Store
    scorers: Scorers | None
    desk: Desk
    listener: Listener
    signals: Signals
    data: DataDir
    url: str
    advertised: str


# ---------------------------------------------------------------------- words on stderr


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(
        level=getattr(logging, level.upper()),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _allow_many_connections() -> None:
    """As many open files as we may have: the usual soft limit of 1,024 is less than a cluster."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _warn_in_red(text: str) -> None:
    red, plain = ("\033[1;31m", "\033[0m") if sys.stderr.isatty() else ("", "")
    print(f"{red}hetsched: {text}{plain}", file=sys.stderr, flush=True)
