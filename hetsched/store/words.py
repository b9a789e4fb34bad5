"""What a Redis or Valkey server says, sorted into what the journal does about it.

No answer (cut, timeout), loading, busy: Unreachable, ask again. Full: a refusal, ask again later and take no work in meanwhile.
Not allowed: ConfigError. A primary that turned read-only or serves our slot no more: Moved. Anything unheard of: StoreLost, with the server's
own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as redis_errors

from hetsched.errors import ConfigError, StoreLost
from hetsched.store.base import Moved, Unreachable

WAIT_WORDS = ("LOADING", "BUSY", "TRYAGAIN", "ASK", "CLUSTERDOWN", "MASTERDOWN", "NOSCRIPT", "UNBLOCKED")
FULL_WORDS = ("OOM", "MISCONF", "NOREPLICAS")
_CUT_WORDS: dict[type[Exception], str] = {
    redis_errors.OutOfMemoryError: "OOM",
    redis_errors.ReadOnlyError: "READONLY",
    redis_errors.MovedError: "MOVED",
    redis_errors.AskError: "ASK",
    redis_errors.NoScriptError: "NOSCRIPT",
    redis_errors.TryAgainError: "TRYAGAIN",
    redis_errors.ClusterDownError: "CLUSTERDOWN",
    redis_errors.MasterDownError: "MASTERDOWN",
}


@contextmanager
def server_words() -> Iterator[None]:
    """Turn what the client raises into the store's own errors."""
    try:
        yield
    except redis_errors.NoPermissionError as error:
        raise _forbidden(error) from None
    except redis_errors.ConnectionError as error:
        # Some versions of the client hide what the server said at the door behind a plain ConnectionError.
        if isinstance(error, redis_errors.AuthenticationError) or isinstance(
            error.__cause__, redis_errors.AuthenticationError
        ):
            raise _forbidden(error) from None
        raise Unreachable(str(error)) from None
    except (redis_errors.TimeoutError, OSError) as error:
        raise Unreachable(str(error) or type(error).__name__) from None
    except redis_errors.ResponseError as error:
        raise _sorted(error) from None


def _forbidden(error: Exception) -> ConfigError:
    return ConfigError(
        f"the store's server refuses us: {error}; check the user, its password and its rights (store.url)"
    )


def first_word(error: Exception) -> str:
    """The error's first word, which the client cuts off where it knows it, and servers before 7.0 hide in a script's story."""
    if type(error) in _CUT_WORDS:
        return _CUT_WORDS[type(error)]
    text = str(error)
    inside = re.search(r"-([A-Z]+) ", text) if text.startswith("Error running script") else None
    return inside[1] if inside else text.split(" ", 1)[0]


def _sorted(error: redis_errors.ResponseError) -> Exception:
    word = first_word(error)
    if word in WAIT_WORDS or word in FULL_WORDS:
        return Unreachable(f"{word} {error}")
    if word == "READONLY":
        return Moved("the store's server is a replica now (READONLY); a new epoch must be opened on the primary")
    if word == "MOVED":
        return Moved(
            "the store's server does not serve our slot of its cluster (any more); redis+cluster:// finds who does"
        )
    return StoreLost(f"the store's server answers: {error}")
