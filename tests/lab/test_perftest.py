"""The real ``ib_write_bw``, on a machine without an RDMA device: it takes our words, and its own are understood."""

import shutil
import subprocess

import pytest

from orchestrator.plan import rdma
from orchestrator.plan.rdma import Pair
from orchestrator.spec.cluster import Rail
from tests.lab.conftest import why_not

pytestmark = pytest.mark.lab

PAIR = Pair(
    "spark-1",
    Rail(netdev="enp0", rdma="roce0", address="127.0.1.11"),
    "spark-2",
    Rail(netdev="enp0", rdma="roce0", address="127.0.1.12"),
)


def test_the_real_tool_takes_our_words_and_says_that_the_device_is_not_there() -> None:
    if reason := why_not():
        pytest.skip(reason)
    assert shutil.which(rdma.TOOL), "tests/lab/setup.sh installs it"
    argv = rdma.commands(PAIR, "node", {}, rdma.port(25000, 0))
    ends = {
        node: subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for node, words in argv.items()
    }
    said = {node: end.communicate(timeout=60)[0] for node, end in ends.items()}
    assert not any("sage:" in words or "invalid option" in words for words in said.values()), said
    test = rdma.judge(PAIR, said, 10e9)
    assert test.verdict == "warn"
    assert test.says.startswith("Unable to find the Infiniband/RoCE device: compare ibdev2netdev")
