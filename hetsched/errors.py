"""The error tree: everything that this program refuses on purpose is a `HetschedError`.

Each class carries a `code` (the coded reason, stable, for machines) and the HTTP status it becomes; `STATUS` is the whole
table. A `Problem` is the RFC 9457 form that the API sends, the event log keeps (`rejected`, field `problem`) and the CLI prints.
Raised at the borders only; inside, a refusal is a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

STATUS: dict[str, int] = {
    "elsewhere": 307,
    "malformed": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "gone": 410,
    "too_large": 413,
    "unsupported_media": 415,
    "invalid": 422,
    "unsatisfiable": 422,
    "too_busy": 429,
    "internal": 500,
    "unavailable": 503,
    "store_lost": 503,
    "deposed": 503,
    "config": 500,
}

TITLE: dict[str, str] = {
    "elsewhere": "Another cell has it",
    "malformed": "The body cannot be read",
    "unauthenticated": "No valid token was given",
    "forbidden": "The token does not allow this",
    "not_found": "There is no such thing",
    "conflict": "It contradicts the present state",
    "gone": "It is no longer kept",
    "too_large": "The body is over the limit",
    "unsupported_media": "The media type is not understood",
    "invalid": "The body breaks a rule",
    "unsatisfiable": "No node could ever take it",
    "too_busy": "The inbox is full",
    "internal": "Something went wrong inside",
    "unavailable": "Not ready to serve",
    "store_lost": "The journal cannot be written",
    "deposed": "Another daemon leads now",
    "config": "The configuration breaks a rule",
}


class HetschedError(Exception):
    """Root of the tree. `code` is a key of STATUS, `detail` a sentence for people."""

    code = "internal"

    def __init__(self, detail: str = "", *, code: str | None = None) -> None:
        super().__init__(detail)
        self.code = code or self.code
        self.detail = detail

    @property
    def status(self) -> int:
        """HTTP status of the code."""
        return STATUS[self.code]

    @property
    def retry_after(self) -> float | None:
        """Seconds after which a retry makes sense; None = the answer will not change by waiting."""
        return None

    def body(self) -> dict[str, Any]:
        """The RFC 9457 object."""
        return {
            "type": f"urn:hetsched:problem:{self.code}",
            "title": TITLE[self.code],
            "status": self.status,
            "detail": self.detail,
        }


class Problem(HetschedError):
    """A refused body: all its faults at once, each as {"pointer": JSON pointer from the body, "detail": the rule}."""

    code = "invalid"

    def __init__(
        self,
        detail: str = "",
        *,
        errors: Iterable[dict[str, str]] = (),
        code: str | None = None,
        status: int | None = None,
        title: str | None = None,
        type: str | None = None,
    ) -> None:
        super().__init__(detail, code=code)
        self.errors = list(errors)
        self._status = status
        self.title = title or TITLE[self.code]
        self.type = type or f"urn:hetsched:problem:{self.code}"

    @classmethod
    def at(cls, pointer: str, detail: str, *, code: str | None = None) -> Problem:
        """A problem with one fault."""
        return cls(f"{pointer or 'the body'}: {detail}", errors=[{"pointer": pointer, "detail": detail}], code=code)

    @classmethod
    def of_query(cls, name: str, rule: str) -> Problem:
        """A query parameter breaks a rule."""
        fault = {"pointer": f"/{name}", "parameter": name, "detail": rule}
        detail = f"query parameter {name!r} {rule}"
        return cls(detail, errors=[fault], code="malformed", title="The query cannot be read")

    @property
    def status(self) -> int:
        return self._status or STATUS[self.code]

    def under(self, prefix: str) -> Problem:
        """The same problem with every pointer moved below `prefix` ("/tasks/3")."""
        moved = [{**error, "pointer": prefix + error["pointer"]} for error in self.errors]
        return Problem(self.detail, errors=moved, code=self.code, status=self._status, title=self.title, type=self.type)

    def body(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            out["errors"] = self.errors
        return out


class Unauthenticated(HetschedError):
    """No token, or one that nobody issued."""

    code = "unauthenticated"


class Forbidden(HetschedError):
    """A good token of the wrong scope."""

    code = "forbidden"


class NotFound(HetschedError):
    """No task, node, queue or device of that name."""

    code = "not_found"


class Elsewhere(HetschedError):
    """The task is another cell's. `cell`: which; `url`: where its leader answers, if known: then it is a 307, else a 503."""

    code = "elsewhere"

    def __init__(self, detail: str = "", *, cell: str = "", url: str = "") -> None:
        super().__init__(detail)
        self.cell = cell
        self.url = url

    @property
    def status(self) -> int:
        return STATUS[self.code] if self.url else 503

    def body(self) -> dict[str, Any]:
        return {**super().body(), "cell": self.cell}


class Conflict(HetschedError):
    """Same id with another body, a stale attempt, a task that has already ended."""

    code = "conflict"


class Gone(HetschedError):
    """Asked for events or logs that are no longer kept."""

    code = "gone"


class TooLarge(HetschedError):
    """Body over `limits.body_bytes`."""

    code = "too_large"


class TooBusy(HetschedError):
    """The bounded inbox is full; come back after `retry_after` seconds."""

    code = "too_busy"

    def __init__(self, detail: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(detail)
        self._retry_after = retry_after

    @property
    def retry_after(self) -> float | None:
        return self._retry_after


class Unavailable(HetschedError):
    """Recovering or standing by. `leader`: address of the daemon that leads, if known."""

    code = "unavailable"

    def __init__(self, detail: str = "", *, leader: str | None = None, retry_after: float = 1.0) -> None:
        super().__init__(detail)
        self.leader = leader
        self._retry_after = retry_after

    @property
    def retry_after(self) -> float | None:
        return self._retry_after

    def body(self) -> dict[str, Any]:
        out = super().body()
        if self.leader:
            out["leader"] = self.leader
        return out


class StoreLost(HetschedError):
    """The journal cannot be reached, or its answer is not known; nothing is acknowledged until it is."""

    code = "store_lost"


class Deposed(StoreLost):
    """The store has accepted a higher epoch: this daemon must stop deciding."""

    code = "deposed"


class ConfigError(HetschedError):
    """The configuration (or a command line over it) breaks a rule. The text names the key and what to change."""

    code = "config"


class ScenarioError(HetschedError):
    """A scenario or trace file that cannot be run; the CLI exits with 2."""

    code = "invalid"
