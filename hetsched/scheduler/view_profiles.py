"""The read side of learned profiles, and the same rows read back: what is exported can be imported."""

from __future__ import annotations

from typing import Any

import msgspec

from hetsched.errors import Problem
from hetsched.model.read_task import FIELD_READERS
from hetsched.model.reader import Faults
from hetsched.policy.profiles import RUNS_KEPT, UNKNOWN_MILLI, Prediction, Profile, Profiles, is_size_class

LONGEST_S = 1e9


def profile_json(profile: Profile, *, with_times: bool) -> dict[str, Any]:
    """One profile; times in seconds, errors as ratios, None = not known (yet)."""
    row: dict[str, Any] = {
        "type": profile.task_type,
        "model": profile.model,
        "size": profile.size,
        "runs": profile.runs,
        "p50": profile.quantile_ms(500) / 1000 if profile.times_ms else None,
        "p90": profile.quantile_ms(900) / 1000 if profile.times_ms else None,
        "error": _ratio(profile.error_milli),
        "estimate_error": _ratio(profile.estimate_error_milli),
        "replaces_estimate": profile.is_known and profile.beats_estimates,
    }
    if with_times:
        row["times"] = [time_ms / 1000 for time_ms in profile.times_ms]
    return row


def profiles_json(profiles: Profiles, task_type: str | None, *, with_times: bool) -> list[dict[str, Any]]:
    """All profiles, or those of a type, by type, size and model."""
    found = sorted(profiles.of(task_type), key=lambda profile: (profile.task_type, profile.size, profile.model))
    return [profile_json(profile, with_times=with_times) for profile in found]


def prediction_json(prediction: Prediction | None) -> dict[str, Any] | None:
    """For `explain`; None = nobody knows."""
    if prediction is None:
        return None
    return {"p50": prediction.p50_s, "p90": prediction.p90_s, "source": prediction.source}


class ProfileRow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A profile as it is exported. `times`: run times in seconds, oldest first. The figures after `runs` follow from them and are not read."""

    type: str
    model: str = ""
    size: str
    times: list[float]
    runs: int = 0
    p50: float | None = None
    p90: float | None = None
    error: float | None = None
    estimate_error: float | None = None
    replaces_estimate: bool | None = None


def read_profiles(rows: list[ProfileRow], most: int) -> tuple[Profile, ...]:
    """Rows of an import. Raises Problem naming the row."""
    if len(rows) > most:
        raise Problem.at("/profiles", f"at most {most} profiles can be kept (limits.profiles)")
    return tuple(_read(f"/profiles/{index}", row) for index, row in enumerate(rows))


def _read(pointer: str, row: ProfileRow) -> Profile:
    faults = Faults()
    FIELD_READERS["kind"](faults, f"{pointer}/type", row.type)
    if len(row.model) > 64 or not row.model.isprintable():
        faults.add(f"{pointer}/model", "must be at most 64 printable characters")
    if not is_size_class(row.size):
        faults.add(
            f"{pointer}/size", 'must be "part", a power of two (of devices), or "cpu" and a power of two (of cores)'
        )
    if faults:
        raise faults.problem()
    if not 1 <= len(row.times) <= RUNS_KEPT:
        raise Problem.at(f"{pointer}/times", f"must be 1 to {RUNS_KEPT} run times; export with times=true")
    if not all(0 < time_s <= LONGEST_S for time_s in row.times):
        raise Problem.at(f"{pointer}/times", f"must be seconds above 0, at most {LONGEST_S:g}")
    if not 0 <= row.runs <= 2**53:
        raise Problem.at(f"{pointer}/runs", "must be from 0 to 2^53")
    times_ms = [max(1, round(time_s * 1000)) for time_s in row.times]
    return Profile(row.type, row.model, row.size, max(row.runs, len(times_ms)), times_ms, 0, UNKNOWN_MILLI)


def _ratio(error_milli: int) -> float | None:
    return None if error_milli == UNKNOWN_MILLI else error_milli / 1000
