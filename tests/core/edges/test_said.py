"""What programs say of their own cause, in the words of what they are written in and of what they call.

said.tsv has a line for each: the cause, "-" for a message that says none, and the message as such a program prints it.
So has said-by-others.tsv, by two who had not seen the words that are looked for (docs/ranking.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.edges import causes, program_causes, said
from app.core.edges.causes import cause_of
from app.core.edges.leads import Cause

HERE = Path(__file__).parent
LINES = [
    tuple(line.split("\t"))
    for file in ("said.tsv", "said-by-others.tsv")
    for line in (HERE / file).read_text().splitlines()
]
WORDS = {"UNREACHED": said.UNREACHED, "NO_CONNECTION": said.NO_CONNECTION}


@pytest.mark.parametrize(("name", "message"), [line for line in LINES if line[0] not in WORDS])
def test_a_message_says_its_cause(name: str, message: str) -> None:
    wanted: Cause | None = vars(program_causes).get(name) or vars(causes).get(name)
    assert (wanted is None) is (name == "-")
    assert cause_of([message]) is wanted


@pytest.mark.parametrize(("name", "message"), [line for line in LINES if line[0] in WORDS])
def test_a_message_says_what_no_cause_is_told_by(name: str, message: str) -> None:
    assert WORDS[name].search(message)


@pytest.mark.parametrize(
    "message",
    [
        "dial tcp 10.2.3.4:443: i/o timeout",
        "connect ETIMEDOUT 10.2.3.4:443",
        "java.net.SocketTimeoutException: connect timed out",
        "java.net.ConnectException: Connection timed out (Connection timed out)",
        "java.net.NoRouteToHostException: No route to host",
        "connection to 10.200.4.15:3300 timed out (WSAETIMEDOUT)",
        "urllib3.exceptions.ConnectTimeoutError: Connection to erp.example timed out. (connect timeout=5)",
        "OSError: [Errno 113] No route to host",
        "connect: network is unreachable",
        "the connected party did not properly respond, or the connected host has failed to respond",
    ],
)
def test_packets_that_do_not_arrive(message: str) -> None:
    assert said.UNREACHED.search(message)


@pytest.mark.parametrize(
    "message",
    [
        "connection refused by 10.2.3.4:443",
        "HTTP probe failed with statuscode: 503",
        "read tcp 10.1.1.1:4000->10.2.3.4:443: read: connection reset by peer",
        "the job timed out after 300s",
        "connection pool: 10 of 10 in use",
    ],
)
def test_what_says_nothing_of_the_way_there(message: str) -> None:
    assert not said.UNREACHED.search(message)


@pytest.mark.parametrize(
    "message",
    [
        "FATAL: sorry, too many clients already",
        "FATAL: remaining connection slots are reserved for roles with the SUPERUSER attribute",
        "ERROR 1040 (HY000): Too many connections",
        "ERR max number of clients reached",
        "FATAL: no more connections allowed (max_client_conn)",
        "ORA-12519: TNS:no appropriate service handler found",
        "User app already has more than 'max_user_connections' active connections",
    ],
)
def test_a_database_that_lets_nobody_in(message: str) -> None:
    assert said.NO_CONNECTION.search(message)
