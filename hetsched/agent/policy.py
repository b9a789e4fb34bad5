"""What this node lets tasks do. It is the agent's own and authoritative: an order that breaks it is refused here, whoever sent it.

Rules, all from the configuration's `[agent]`:
 - **user**: an agent that is not root runs tasks as itself and as nobody else. One that is root runs a task that names no user as
   `default_user`, or as root only where `allow_root` is set. A task may name the default and whoever `users` lists; root, under
   any name of uid 0, only where `allow_root` is set.
 - **executables**: where given, patterns of which the program's real path (links followed) must match one.
 - **environment**: names that match `env_deny` are not passed on; the task finds a line about each in its stderr.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

from hetsched.config import Agent as Policy

__all__ = ["PATH", "Account", "Policy", "Refusal", "account_for", "executable_for", "is_denied"]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Of tasks that bring none."""


_NO_SHELLS = ("", "nologin", "false")  # for people who may not log in; programs that look for $SHELL mean another


class Refusal(Exception):
    """An order that cannot be obeyed on this node; the text becomes the reason `cannot_start: …`."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Who a task runs as. `switch`: the shim has to change to it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str
    switch: bool


def account_for(policy: Policy, user: str | None) -> Account:
    """Who the task runs as, or Refusal. `user`: a name or a number, None = none named."""
    if os.geteuid() != 0:
        own = _account(os.geteuid(), switch=False)
        if user not in (None, own.name, str(own.uid)):
            raise Refusal(f"policy: the agent runs as {own.name} and cannot become {user}")
        return own
    default = _account("root" if policy.allow_root else policy.default_user, switch=True)
    account = default if user is None else _account(user, switch=True)
    if account.uid == 0 and not policy.allow_root:
        raise Refusal("policy: tasks do not run as root here (agent.allow_root)")
    if account.uid != default.uid and account.name not in policy.users:
        raise Refusal(f"policy: {account.name} is not among the users of this node (agent.users)")
    return account


def _account(user: str | int, *, switch: bool) -> Account:
    try:
        if isinstance(user, int) or user.isdigit():
            entry = pwd.getpwuid(int(user))
        else:
            entry = pwd.getpwnam(user)
    except KeyError:
        if isinstance(user, int):  # a container's user without a name
            return Account(
                name=str(user), uid=user, gid=os.getegid(), groups=(), home="/", shell="/bin/sh", switch=switch
            )
        raise Refusal(f"there is no user {user} on this node") from None
    return Account(
        name=entry.pw_name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)),
        home=entry.pw_dir,
        shell=entry.pw_shell if os.path.basename(entry.pw_shell) not in _NO_SHELLS else "/bin/sh",
        switch=switch,
    )


def executable_for(policy: Policy, program: str, env: Mapping[str, str], workdir: str | None) -> str | None:
    """The path to execute instead of searching for `program`; None where the policy leaves it to the search. Raises Refusal."""
    if not policy.executables:
        return None
    found = _find(program, env.get("PATH", PATH), workdir)
    if found is None:
        raise Refusal(f"No such file or directory: {program}")
    real = os.path.realpath(found)
    if not any(fnmatchcase(real, pattern) for pattern in policy.executables):
        raise Refusal(f"policy: {real} is not among the programs of this node (agent.executables)")
    return real


def _find(program: str, path: str, workdir: str | None) -> str | None:
    if "/" in program:
        absolute = os.path.isabs(program)
        if not absolute and workdir is None:
            return None  # the task's own directory is empty when it starts
        candidates = [program if absolute else os.path.join(workdir or "", program)]
    else:
        candidates = [os.path.join(part, program) for part in path.split(":") if os.path.isabs(part)]
    return next((one for one in candidates if os.path.isfile(one) and os.access(one, os.X_OK)), None)


def is_denied(policy: Policy, name: str) -> bool:
    """Whether a variable of a task's environment is not passed on."""
    return any(fnmatchcase(name, pattern) for pattern in policy.env_deny)
