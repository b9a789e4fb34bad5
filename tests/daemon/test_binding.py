"""Where it may listen: tokens never cross a network in clear by accident."""

from __future__ import annotations

import pytest

from hetsched.daemon.binding import bind_to, host_names, parse_listen
from hetsched.errors import ConfigError


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:8700", "localhost:1"])
def test_loopback_needs_nothing(listen: str) -> None:
    binding = bind_to(listen)
    assert binding.loopback and not binding.insecure
    assert {"localhost", "127.0.0.1", "[::1]"} <= (host_names(binding) or set())


@pytest.mark.parametrize("listen", ["0.0.0.0:8700", ":8700", "[::]:8700", "192.0.2.7:8700"])
def test_any_other_address_refuses_to_start_and_names_the_commands(listen: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        bind_to(listen)
    for command in ("--listen 127.0.0.1:8700", "openssl req", "server.tls_cert", "--insecure", "ssh -L"):
        assert command in str(refusal.value)


def test_insecure_is_possible_and_remembered() -> None:
    binding = bind_to("0.0.0.0:8700", insecure=True)
    assert binding.insecure and host_names(binding) is None
    assert not bind_to("127.0.0.1:8700", insecure=True).insecure, "nothing is exposed there"


@pytest.mark.parametrize(
    "listen", ["", "8700", "host", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1", "::1:8700", "1.2.3.4:x"]
)
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_listen(listen)


def test_certificate_and_key_go_together() -> None:
    with pytest.raises(ConfigError, match="tls_cert"):
        bind_to("0.0.0.0:1", cert="only.crt")
    with pytest.raises(ConfigError, match=r"no file nothere\.crt"):
        bind_to("0.0.0.0:1", cert="nothere.crt", key="nothere.key")


def test_the_address_for_clients() -> None:
    assert bind_to("[::1]:0").url(5) == "http://[::1]:5"
    assert bind_to("127.0.0.1:0").url(5) == "http://127.0.0.1:5"
