"""Where the daemon may listen, and what it demands there.

Promise: tokens never cross a network in clear by accident. Loopback needs nothing; any other address needs TLS, or somebody who
says `--insecure` and is told what that means. On loopback only local names are accepted as Host, so that a web page that
rebinds its own name to 127.0.0.1 reaches nothing.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hetsched.errors import ConfigError

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")

HOW_TO_LISTEN = """\
{host} can be reached from other machines, and without TLS every token would cross the network in clear. One of:
  keep it local:      hetsched serve --listen 127.0.0.1:{port}    (from elsewhere: ssh -L {port}:127.0.0.1:{port} THIS-HOST)
  give it TLS:        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \\
                        -subj /CN=$(hostname) -addext subjectAltName=DNS:$(hostname) -keyout hetsched.key -out hetsched.crt
                      hetsched serve --listen {host}:{port} --set server.tls_cert=hetsched.crt --set server.tls_key=hetsched.key
  know better:        hetsched serve --listen {host}:{port} --insecure"""


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """`tls`: context to serve with, None = plain. `insecure`: plain although others can reach it."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    insecure: bool = False

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def url(self, port: int) -> str:
        """Address for clients, with the port that was really bound."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{port}"

    def reachable(self, url: str) -> str:
        """The same for others: with the host's name where it listens on every address."""
        every = {"0.0.0.0": "0.0.0.0", "::": "[::]"}.get(self.host)
        return url if every is None else url.replace(every, socket.getfqdn(), 1)


def bind_to(
    listen: str,
    *,
    cert: str | None = None,
    key: str | None = None,
    client_ca: str | None = None,
    insecure: bool = False,
) -> Binding:
    """The binding for `HOST:PORT`; raises ConfigError naming the ways out when it would not be safe."""
    host, port = parse_listen(listen)
    tls = tls_context(cert, key, client_ca)
    exposed = tls is None and not is_loopback(host)
    if exposed and not insecure:
        raise ConfigError(HOW_TO_LISTEN.format(host=host, port=port))
    return Binding(host=host, port=port, tls=tls, insecure=exposed)


def parse_listen(listen: str) -> tuple[str, int]:
    """`127.0.0.1:7463`, `[::1]:0`, `:7463` (every address)."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ConfigError(f"listen: {listen!r} is no HOST:PORT, like 127.0.0.1:7463 or [::1]:7463")
    return host.strip("[]") or "0.0.0.0", int(port)


def is_loopback(host: str) -> bool:
    """Whether every address of the host is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except OSError as error:
        raise ConfigError(f"listen: cannot find the address of {host!r}: {error}") from error
    return all(ipaddress.ip_address(address[4][0]).is_loopback for address in found)


def tls_context(cert: str | None, key: str | None, client_ca: str | None) -> ssl.SSLContext | None:
    """TLS 1.2 and later with this certificate; with `client_ca`, clients have to show one that it signed."""
    if not cert and not key:
        return None
    if not cert or not key:
        raise ConfigError("server.tls_cert and server.tls_key go together")
    for path in (cert, key, client_ca):
        if path and not Path(path).is_file():
            raise ConfigError(f"there is no file {path}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
        if client_ca:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"cannot use {cert} with {key}: {error}") from error
    return context


def host_names(binding: Binding, extra: Iterable[str] = ()) -> frozenset[str] | None:
    """Names accepted in Host (without port, lower case); None = any."""
    if not binding.loopback:
        return None
    own = f"[{binding.host}]" if ":" in binding.host else binding.host
    return frozenset(name.lower() for name in (*LOCAL_NAMES, own, *extra))
