"""What a Prometheus has scraped, where it is asked for: of itself, or of what has its API and its samples, for real."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.programs import found, found_thanos, free_address, running

REPLICA = "replica"
"""The label by which what keeps samples of several Prometheuses tells them apart."""
SENDING_EVERY = "100ms"
LATE = 3
"""Seconds by which samples may be known later than they are of; half a minute, if VictoriaMetrics is not told so."""

Start = Callable[[Path, Mapping[str, Any]], AbstractContextManager[str]]


@contextmanager
def prometheus(folder: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """Where a Prometheus is that does what ``config`` says."""
    executable = found("prometheus", package="prometheus")
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(config))
    command = [executable, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    # A sidecar wants to hand over blocks that nobody compacts but Thanos.
    command += [f"--storage.tsdb.{which}-block-duration=2h" for which in ("min", "max")]
    with running(*command, address=free_address(), folder=folder) as url:
        yield url


@contextmanager
def victoria_metrics(folder: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """Where a VictoriaMetrics is to which such a Prometheus sends what it scrapes and what its rules say."""
    executable = found("victoria-metrics", package="victoria-metrics")
    (own := folder / "victoria-metrics").mkdir()
    command = (executable, f"-storageDataPath={own / 'data'}", f"-search.latencyOffset={LATE}s")
    with running(*command, address=free_address(), folder=own, flag="-httpListenAddr") as url:
        sending = {"url": f"{url}/api/v1/write", "queue_config": {"batch_send_deadline": SENDING_EVERY}}
        with prometheus(folder, {**config, "remote_write": [sending]}):
            yield url


@contextmanager
def thanos(folder: Path, config: Mapping[str, Any], *also: str) -> Iterator[str]:
    """Where a Thanos Query is that asks such a Prometheus by a sidecar, and ``also`` the stores at these addresses."""
    executable, stores = found_thanos(), free_address()
    labelled = {**config, "global": {**config["global"], "external_labels": {REPLICA: "0"}}}
    with ExitStack() as stack:
        url = stack.enter_context(prometheus(folder, labelled))
        for name, flags in {
            "sidecar": [f"--prometheus.url={url}", f"--tsdb.path={folder / 'data'}", f"--grpc-address={stores}"],
            "query": [
                f"--grpc-address={free_address()}",
                f"--query.replica-label={REPLICA}",
                *(f"--endpoint-strict={one}" for one in (stores, *also)),
            ],
        }.items():
            (own := folder / name).mkdir()
            command = (executable, name, *flags)
            url = stack.enter_context(running(*command, address=free_address(), folder=own, flag="--http-address"))
        yield url


ALL: dict[str, Start] = {"Prometheus": prometheus, "VictoriaMetrics": victoria_metrics, "Thanos": thanos}
