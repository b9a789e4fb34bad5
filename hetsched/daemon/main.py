"""`hetsched serve`: start in order, serve, stop in order.

    lock → tokens → listen (503 to everybody) → store: identity, new epoch → snapshot → frames → nodes expected → ready

The listener opens early, so that a port in use is found before an older daemon is deposed, and so that a recovery answers 503 instead of
nothing; the address is printed and published only once ready. SIGTERM: nothing new is taken, the turns under way become durable and are
answered, the state is snapshotted, the store closed. No task is ever stopped by it.

A journal that cannot be read to its end is no reason to die and be started again for ever: see safe.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from hetsched.api.app import Listener
from hetsched.api.desk import Desk
from hetsched.config import Config, to_mapping
from hetsched.daemon.auth import Token, load_tokens
from hetsched.daemon.binding import Binding, bind_to, host_names
from hetsched.daemon.daemon import Daemon
from hetsched.daemon.lock import DataDir
from hetsched.daemon.recover import recover_prefix
from hetsched.daemon.safe import SafeMode, safe_mode
from hetsched.daemon.signals import Signals, Supervisor
from hetsched.errors import ConfigError, Deposed, StoreLost
from hetsched.store import JournalCorrupt, open_store, without_secrets

log = logging.getLogger("hetsched.daemon")

EXIT_OK, EXIT_FAULT, EXIT_TRY_AGAIN, EXIT_FIX_ME = 0, 70, 75, 78
"""sysexits.h: 75 = starting again may help (the store was lost), 78 = a person has to change something first.

Deposed is 78: a supervisor that started it again would have two daemons depose each other for ever.
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

    async def run(self) -> int:
        """Everything, in order."""
        data = DataDir(self._data_dir)
        try:
            desk = self._desk()
            listener = Listener(desk, drain_s=self._config.server.drain_timeout)
            with Signals(reload=lambda: self._reload_tokens(desk)) as signals:
                url = await self._listen(listener)
                try:
                    return await self._with_store(desk, listener, signals, data, url)
                finally:
                    await listener.stop()
        finally:
            data.release()

    # ------------------------------------------------------------------ starting

    def _desk(self) -> Desk:
        if self._binding.insecure:
            _warn_in_red(f"INSECURE: tokens cross the network in clear on {self._binding.host}")
        return Desk(
            self._config,
            load_tokens(self._data_dir, self._configured_tokens()),
            hosts=host_names(self._binding, self._config.server.allowed_hosts),
            insecure=self._binding.insecure,
        )

    def _configured_tokens(self) -> list[Token]:
        return [
            Token(name=token.name, sha256=token.sha256, scopes=token.scopes, queues=token.queues)
            for token in self._config.auth.tokens
        ]

    def _reload_tokens(self, desk: Desk) -> None:
        try:
            desk.tokens = load_tokens(self._data_dir, self._configured_tokens())
            log.info("tokens read again")
        except (ConfigError, OSError) as error:
            log.error("tokens stay as they are: %s", error)

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

    async def _with_store(self, desk: Desk, listener: Listener, signals: Signals, data: DataDir, url: str) -> int:
        store = await open_store(self._store_url, self._data_dir, self._config)
        data.publish_config(self._config_in_effect())
        try:
            began_s = time.monotonic()
            try:
                scheduler, opened, damage = await recover_prefix(self._config, store)
            except JournalCorrupt as error:
                return await self._know_nothing(self._safe_mode(error, ""), desk, signals, data, url)
            safe = None if damage is None else self._safe_mode(damage, opened.frames.at.id)
            daemon = Daemon(
                self._config,
                scheduler,
                store,
                cluster_id=opened.cluster_id,
                url=url,
                insecure=self._binding.insecure,
                safe=safe,
            )
            log.info(
                "recovered in %.3f s, epoch %d, journal at %s",
                time.monotonic() - began_s,
                opened.epoch,
                opened.frames.at.id,
            )
            try:
                if safe is not None:
                    return await self._show_prefix(daemon, desk, signals, data)
                return await self._serve(daemon, desk, listener, signals, data)
            finally:
                daemon.planner.close()
        finally:
            await store.close()

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

    async def _show_prefix(self, daemon: Daemon, desk: Desk, signals: Signals, data: DataDir) -> int:
        """Answer reads and keep leases, until told to stop or until another daemon leads."""
        desk.open(daemon)
        await self._until_stopped(signals, data, daemon.url, daemon.store.failed)
        desk.close()
        daemon.events.close()
        daemon.links.close()
        if not signals.stop.is_set():
            raise daemon.store.failed.result()
        return EXIT_OK

    async def _know_nothing(self, safe: SafeMode, desk: Desk, signals: Signals, data: DataDir, url: str) -> int:
        """Say why, until told to stop."""
        desk.know_nothing(safe)
        await self._until_stopped(signals, data, url)
        desk.close()
        return EXIT_OK

    async def _until_stopped(
        self, signals: Signals, data: DataDir, url: str, *ends: asyncio.Future[Any], status: str = "safe mode"
    ) -> None:
        data.publish_url(url)
        print(f"listening on {url}", flush=True)
        async with self._supervisor.ready(f"{status} on {url}"):
            stopping = asyncio.create_task(signals.stop.wait(), name="until stopped")
            await asyncio.wait([stopping, *ends], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()

    # ------------------------------------------------------------------ serving

    async def _serve(self, daemon: Daemon, desk: Desk, listener: Listener, signals: Signals, data: DataDir) -> int:
        turning = asyncio.create_task(daemon.turns.run(), name="turn loop")
        daemon.expect_nodes()
        desk.open(daemon)
        await self._until_stopped(signals, data, daemon.url, turning, daemon.store.failed, status="serving")
        desk.close()
        daemon.events.close()
        daemon.links.close()
        if not signals.stop.is_set():
            return await self._fail(daemon, turning)
        await self._finish(daemon, turning, listener)
        return EXIT_OK

    async def _fail(self, daemon: Daemon, turning: asyncio.Task[None]) -> int:
        """The journal is lost or the scheduler broke: raise what it was."""
        if not turning.done():
            turning.cancel()
        await asyncio.gather(turning, return_exceptions=True)
        if daemon.store.failed.done():
            raise daemon.store.failed.result()
        turning.result()
        return EXIT_FAULT

    async def _finish(self, daemon: Daemon, turning: asyncio.Task[None], listener: Listener) -> None:
        log.info("stopping; tasks go on without the daemon")
        daemon.turns.close()
        drain_s = self._config.server.drain_timeout
        done, _ = await asyncio.wait({turning}, timeout=drain_s)
        if not done:
            log.warning("the store did not confirm the last frames within %g s; their callers are told so", drain_s)
            turning.cancel()
            await asyncio.gather(turning, return_exceptions=True)
        await listener.stop()
        if done and turning.exception() is None:
            await daemon.snapshots.last()


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
