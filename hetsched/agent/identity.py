"""Who this agent is and whom it has obeyed, on disk: the cluster, the highest epoch, and the lock that keeps a second agent out.

`instance` tells this directory from any other: a second agent on the machine that was given the same name by mistake differs in nothing
else, and whoever believed it would start again what the first one runs.

Promises: an order of an epoch below the highest seen is never obeyed, across restarts too, because the new highest is on disk
before the first order under it; an agent that runs something, or has an end to tell, never changes its cluster.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from hetsched.agent.shim import files
from hetsched.errors import ConfigError

_FILE = "identity.json"


class Identity:
    """The agent's directory, held by this process until `close`. Raises ConfigError where another agent holds it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = _locked(directory)
        self._handle = files.open_directory(str(directory))
        kept = files.read_whole(self._handle, _FILE) or {}
        self.cluster: str = kept.get("cluster", "")
        self.highest_epoch: int = kept.get("highest_epoch", 0)
        self.instance: str = kept.get("instance", "")
        if not self.instance:
            self.instance = secrets.token_hex(8)
            self._keep(self.cluster, self.highest_epoch)

    def refusal(self, cluster: str, epoch: int, *, holds_attempts: bool) -> str:
        """Why a daemon of this cluster and epoch is not obeyed; "" = it is."""
        if self.cluster in ("", cluster):
            if epoch >= self.highest_epoch:
                return ""
            return f"the daemon's epoch is {epoch}, this agent has obeyed {self.highest_epoch}: a newer daemon leads"
        if not holds_attempts:
            return ""  # nothing of the old cluster is left here
        return (
            f"the daemon's cluster is {cluster}, this agent still has attempts of {self.cluster}; "
            f"start it with another --data, or remove {self.directory} once nothing of it runs"
        )

    def obey(self, cluster: str, epoch: int) -> None:
        """Keeps whom we obey from now on. Durable when it returns."""
        if (cluster, epoch) == (self.cluster, self.highest_epoch):
            return
        self._keep(cluster, epoch)
        self.cluster, self.highest_epoch = cluster, epoch

    def _keep(self, cluster: str, epoch: int) -> None:
        content = {"cluster": cluster, "highest_epoch": epoch, "instance": self.instance}
        files.write_whole(self._handle, _FILE, content, durable=True)

    def close(self) -> None:
        """Another agent may have the directory."""
        os.close(self._handle)
        os.close(self._lock)


def _locked(directory: Path) -> int:
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise ConfigError(
            f"{directory} is in use by another agent (process {holder}); stop it, or give this one another --name or --data"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle
