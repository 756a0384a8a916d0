"""The command as a person meets it: words, exit codes, and no traceback whatever is wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import PIPE
from types import MappingProxyType

import pytest

from orchestrator.cli.up import _curl
from orchestrator.run import agentzip
from orchestrator.verbs.up import Finished
from tests.bench.commands import wide
from tests.unit.builders import plan, profile, resolved

ROOT = Path(__file__).parents[2]
PROFILES = sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml"))
Cli = Callable[..., subprocess.CompletedProcess[str]]

CLUSTER = """\
nodes:
  - {name: a, ssh: {host: 127.0.0.1, user: nobody, port: PORT}, rails: [{netdev: eth0, address: 198.51.100.1}]}
  - {name: b, ssh: {host: 127.0.0.1, user: nobody, port: PORT}, rails: [{netdev: eth0, address: 198.51.100.2}]}
"""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs sparkctl in an empty folder and an empty home."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SPARKCTL_"))}
    (tmp_path / "home").mkdir()
    own |= {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": ""}

    def run(*words: str, env: Mapping[str, str] = MappingProxyType({})) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "orchestrator.cli", *words]
        both = {**own, **env}
        done = subprocess.run(argv, cwd=tmp_path, env=both, capture_output=True, text=True, check=False, timeout=120)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").stdout.startswith("sparkctl ")
    assert all(verb in cli("--help").stdout for verb in ("up", "plan", "status", "logs", "down", "completion"))


def test_a_mistyped_verb_and_a_mistyped_profile_name_the_nearest(cli: Cli) -> None:
    done = cli("statsu")
    assert (done.returncode, "did you mean status?" in done.stderr) == (2, True)
    done = cli("plan", "tinny")
    assert done.returncode == 2
    assert "profile tinny: there is no such profile; did you mean tiny?" in done.stderr


@pytest.mark.parametrize("name", ["../tiny", "/etc/passwd", "profiles/tiny.yaml"])
def test_a_profile_is_named_not_pathed(cli: Cli, name: str) -> None:
    done = cli("plan", name)
    assert done.returncode == 2
    assert "name" in done.stderr


EVIL = "../../../../tmp/evil"


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "tiny", "--name", EVIL),
        ("up", "tiny", "--name", EVIL),
        ("plan", "tiny", "--offline", "--name", "Tiny"),
        ("plan", "tiny", "--name", ""),
        ("plan", "tiny", "--name", "a" * 43),
        ("status", EVIL),
        ("logs", EVIL),
        ("down", EVIL),
        ("down", "tiny*"),
        ("down", ""),  # a script's empty variable must not mean "the only one"
    ],
)
def test_a_deployment_is_named_not_pathed(cli: Cli, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = cli(*words)
    assert (done.returncode, done.stdout) == (2, "")
    where = "--name" if "--name" in words else "NAME"
    assert f"{where}: should be letters a-z, digits, inner hyphens and dots, at most 42, found " in done.stderr
    assert list(tmp_path.rglob("*")) == [tmp_path / "home"]


def test_plan_is_canonical_json_for_scripts_and_can_be_stored(cli: Cli, tmp_path: Path) -> None:
    shown = cli("plan", "tiny", "--offline", "--json", "--out", "plan.json").stdout
    assert json.loads(shown)["deployment"] == "tiny"
    assert (tmp_path / "plan.json").read_text() == shown


def test_planning_has_no_effect_on_this_machine(cli: Cli, tmp_path: Path) -> None:
    assert cli("plan", "tiny").returncode == 0
    assert cli("plan", "deepseek-v4-flash", "--nodes", "2").returncode == 0
    assert list(tmp_path.rglob("*")) == [tmp_path / "home"]


def test_without_a_cluster_file_a_plan_says_so_and_up_refuses(cli: Cli) -> None:
    assert "no cluster.yaml" in cli("plan", "deepseek-v4-flash").stdout
    done = cli("up", "deepseek-v4-flash")
    assert done.returncode == 2
    assert "there is no cluster.yaml" in done.stderr
    assert "->" in done.stderr


def test_two_problems_in_one_file_are_told_at_once(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    text = (ROOT / "profiles" / "tiny.yaml").read_text(encoding="utf-8")
    text = text.replace("context_tokens: 512", "context_tokns: 512").replace("runtime: process", "runtime: podman")
    (tmp_path / "profiles" / "tiny.yaml").write_text(text)
    done = cli("plan", "tiny")
    assert done.returncode == 2
    assert "profiles/tiny.yaml engine/context_tokns: unknown key; did you mean context_tokens?" in done.stderr
    assert "profiles/tiny.yaml runtime:" in done.stderr


def test_an_illegal_node_count_names_the_legal_ones(cli: Cli) -> None:
    done = cli("plan", "deepseek-v4-flash", "--nodes", "3")
    assert done.returncode == 2
    assert "3 nodes do not divide: heads 64 % tensor parallel 3" in done.stderr
    assert "->" in done.stderr


def test_what_is_wrong_with_a_cluster_names_its_own_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "sw.yaml").write_text("\n".join(CLUSTER.replace("PORT", "9").splitlines()[:2]))
    done = cli("--cluster", "sw.yaml", "plan", "deepseek-v4-flash")
    assert done.returncode == 2
    assert "sparkctl: sw.yaml nodes: should be at least 2 for this plan, found 1 (a)" in done.stderr


def test_the_cluster_option_behind_the_verb(cli: Cli) -> None:
    done = cli("plan", "tiny", "--cluster", "x.yaml")
    assert done.returncode == 2
    assert "Error: --cluster goes before the verb: sparkctl --cluster FILE plan …" in done.stderr


def test_nodes_out_of_reach_are_all_named_with_a_way_out(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("PORT", str(closed_port())))
    done = cli("up", "deepseek-v4-flash", "--executor", "mp")
    assert done.returncode == 1
    assert "sparkctl: a: " in done.stderr
    assert "sparkctl: b: " in done.stderr
    assert "->" in done.stderr
    a, b = (done.stderr.index(f"sparkctl: {node}: ") for node in "ab")
    assert "\n  -> " in done.stderr[a:b]  # a way out for each of them, under its own line
    assert "\n  -> " in done.stderr[b:]
    done = cli("plan", "deepseek-v4-flash")
    assert done.returncode == 0
    assert "a: not compared" in done.stdout
    assert "\n  -> " in done.stdout
    assert "nothing runs yet" not in done.stdout


def test_a_missing_cluster_file_that_was_named(cli: Cli) -> None:
    for words in (("status",), ("down",), ("plan", "deepseek-v4-flash"), ("fit", "deepseek-v4-flash", "--ask")):
        done = cli("--cluster", "nowhere.yaml", *words)
        assert done.returncode == 2
        assert "nowhere.yaml: should be a cluster file, found nothing; docs/cluster.md has" in done.stderr


def test_status_and_down_where_nothing_runs(cli: Cli) -> None:
    assert (cli("status").stdout, cli("status", "--json").stdout) == ("nothing runs\n", "[]\n")
    done = cli("down", "tiny")
    assert (done.returncode, done.stdout) == (0, "no deployment tiny is recorded on any node, nothing to do\n")
    assert cli("down").stdout == "nothing runs, nothing to do\n"
    assert cli("logs").stdout == "nothing runs\n"


def test_a_stored_plan_is_refused_when_the_world_has_moved(cli: Cli, tmp_path: Path) -> None:
    cli("plan", "tiny", "--out", "plan.json")
    (tmp_path / "profiles").mkdir()
    text = (ROOT / "profiles" / "tiny.yaml").read_text(encoding="utf-8")
    (tmp_path / "profiles" / "tiny.yaml").write_text(text.replace("context_tokens: 512", "context_tokens: 256"))
    done = cli("up", "tiny", "--plan", "plan.json")
    assert done.returncode == 4, done.stderr
    assert "the world moved" in done.stderr
    assert "512" in done.stderr
    assert "256" in done.stderr
    assert list((tmp_path / "home").iterdir()) == []


def test_a_stored_plan_that_was_edited_is_not_carried_out(cli: Cli, tmp_path: Path) -> None:
    value = json.loads(cli("plan", "tiny", "--out", "plan.json", "--json").stdout)
    for edited in ({**value, "served_name": "other"}, {**value, "digest": "sha256:" + "0" * 64}):
        (tmp_path / "plan.json").write_text(json.dumps(edited))
        done = cli("up", "--plan", "plan.json")
        assert (done.returncode, done.stdout) == (2, "")
        assert "plan.json: should be a plan as it was stored, found that the file was changed after it was written" in (
            done.stderr
        )
        assert "-> change the profile or cluster.yaml, then plan anew: sparkctl plan tiny --out FILE" in done.stderr


@pytest.mark.parametrize("words", [("plan", "tiny", "--name", "x.lock"), ("status", "x.lock"), ("down", "x.lock")])
def test_no_deployment_is_called_as_the_lock_of_another(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli(*words)
    assert done.returncode == 2
    assert "should not end in .lock, as the lock of another deployment does, found x.lock" in done.stderr


def test_no_profile_is_called_as_a_lock(cli: Cli) -> None:
    done = cli("plan", "x.lock")
    assert done.returncode == 2
    assert "none ends in .lock, as the lock of a deployment does, found x.lock" in done.stderr


def test_a_stored_plan_that_is_none(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    done = cli("up", "tiny", "--plan", "plan.json")
    assert done.returncode == 2
    assert "plan.json: should be a stored plan, found that it is not a launch plan of this version: " in done.stderr
    (tmp_path / "README.md").write_text("# words\n")
    done = cli("up", "--plan", "README.md")
    assert done.returncode == 2
    assert "README.md: should be a stored plan, found that it is not a launch plan of this version: no JSON: " in (
        done.stderr
    )
    assert "-> sparkctl plan PROFILE --out FILE" in done.stderr
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert "it is not UTF-8 text" in cli("up", "--plan", "bytes").stderr


def test_a_plan_cannot_be_stored_where_there_is_no_directory(cli: Cli) -> None:
    done = cli("plan", "tiny", "--offline", "--out", "nodir/f.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--out: should be a file that can be written, found nodir/f.json: No such file or directory" in done.stderr
    done = cli("up", "--plan", "nodir/f.json")
    assert done.returncode == 2
    assert "--plan: should be a file that can be read, found nodir/f.json: No such file or directory" in done.stderr


def test_a_stored_plan_says_by_itself_what_to_plan(cli: Cli, tmp_path: Path) -> None:
    made = cli("plan", "tiny", "--nodes", "1", "--executor", "mp", "--name", "mine", "--out", "my plan.json")
    assert made.stdout.endswith("carry it out with: sparkctl up --plan 'my plan.json'\n")
    done = cli("up", "deepseek-v4-flash", "--nodes", "2", "--executor", "ray", "--name", "x", "--plan", "my plan.json")
    assert done.returncode == 2
    for line in (
        "PROFILE: should be tiny as in my plan.json, found deepseek-v4-flash",
        "--nodes: should be 1 as in my plan.json, found 2",
        "--executor: should be mp as in my plan.json, found ray",
        "--name: should be mine as in my plan.json, found x",
    ):
        assert line in done.stderr
    (tmp_path / "profiles").mkdir()
    text = (ROOT / "profiles" / "tiny.yaml").read_text(encoding="utf-8")
    (tmp_path / "profiles" / "tiny.yaml").write_text(text.replace("context_tokens: 512", "context_tokens: 256"))
    done = cli("up", "--plan", "my plan.json")
    assert done.returncode == 4
    assert "the world moved" in done.stderr


def test_a_stored_plan_cannot_lead_out_of_the_state_folder(cli: Cli, tmp_path: Path) -> None:
    value = json.loads(cli("plan", "tiny", "--offline", "--json").stdout)
    (tmp_path / "plan.json").write_text(json.dumps({**value, "deployment": EVIL}))
    done = cli("up", "--plan", "plan.json")
    assert done.returncode == 2
    assert "plan.json deployment: should be letters" in done.stderr


def test_up_needs_a_profile_or_a_stored_plan(cli: Cli) -> None:
    done = cli("up")
    assert done.returncode == 2
    assert "should name a PROFILE or a stored plan, found neither\nsparkctl:   -> sparkctl profiles list" in done.stderr


def test_a_plan_for_example_nodes_is_not_offered_to_up(cli: Cli) -> None:
    said = cli("plan", "deepseek-v4-flash", "--out", "plan.json").stdout
    assert "stored in plan.json; it is for example nodes: write cluster.yaml" in said
    assert "--plan" not in said.splitlines()[-1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_for_every_shell(cli: Cli, shell: str) -> None:
    script = cli("completion", shell).stdout
    assert "_SPARKCTL_COMPLETE" in script
    assert script.endswith("\n")


def test_output_that_nobody_reads_is_no_error(cli: Cli, tmp_path: Path) -> None:
    line = f"{sys.executable} -m orchestrator.cli plan deepseek-v4-flash | head -n 1"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def record(cli: Cli, home: Path, name: str) -> None:
    """Have this machine's nodes hold the record of a deployment that was stopped behind everybody's back."""
    text = cli("plan", "tiny", "--nodes", "1", "--executor", "mp", "--name", name, "--offline", "--json").stdout
    folder = home / ".local/state/sparkctl" / name / "g1"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(text)
    agent = agentzip.build()
    (folder.parent / "agent").mkdir()
    (folder.parent / "agent" / f"{agent.sha256}.pyz").write_bytes(agent.content)


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """A cluster file with two nodes that refuse connections."""
    path = tmp_path / "dark.yaml"
    path.write_text(CLUSTER.replace("PORT", str(closed_port())))
    return path


def test_silent_nodes_are_unknown_to_status_and_down(cli: Cli, silent: Path) -> None:
    done = cli("--cluster", str(silent), "status")
    assert done.returncode == 1
    assert "UNKNOWN: what runs on a, b" in done.stdout
    assert done.stdout.count("    -> ") == 2
    done = cli("--cluster", str(silent), "status", "--json")
    (entry,) = json.loads(done.stdout)
    assert (done.returncode, entry["deployment"], entry["ready"], list(entry["silent"])) == (1, None, False, ["a", "b"])
    done = cli("--cluster", str(silent), "status", "x")
    assert (done.returncode, "x: UNKNOWN" in done.stdout) == (1, True)
    for words in (("down", "x"), ("logs", "x"), ("down",), ("logs",)):
        done = cli("--cluster", str(silent), *words)
        assert (done.returncode, done.stdout) == (1, ""), words
        assert "sparkctl: a: UNKNOWN, " in done.stderr
        assert "sparkctl: b: UNKNOWN, " in done.stderr
        assert done.stderr.count("\n  -> ") == 2


def test_the_only_one_is_not_chosen_while_nodes_are_silent(cli: Cli, tmp_path: Path, silent: Path) -> None:
    record(cli, tmp_path / "home", "mine")
    (tmp_path / "cluster.yaml").write_text(silent.read_text())
    done = cli("down")
    assert done.returncode == 1
    assert "NAME: should be given while nodes are silent, found no name; elsewhere there is mine" in done.stderr
    assert "mine" not in cli("--cluster", "dark.yaml", "down").stderr  # that cluster only was asked for
    assert (tmp_path / "home/.local/state/sparkctl/mine/g1/plan.json").exists()
    done = cli("status")
    assert (done.returncode, "mine: " in done.stdout, "UNKNOWN: what runs on a, b" in done.stdout) == (1, True, True)
    assert "a, b" not in cli("status", "mine").stdout


def test_a_name_that_is_recorded_nowhere(cli: Cli, tmp_path: Path) -> None:
    assert "-> start it: sparkctl up tiny" in cli("status", "tiny").stderr
    record(cli, tmp_path / "home", "mine")
    for verb in ("status", "logs"):
        done = cli(verb, "nosuch")
        assert done.returncode == 2
        assert "no deployment nosuch is recorded on any node\nsparkctl:   -> there is mine\n" in done.stderr
    done = cli("down", "nosuch")
    assert done.returncode == 0
    assert done.stdout == "no deployment nosuch is recorded on any node, nothing to do; there is mine\n"
    assert json.loads(cli("down", "nosuch", "--json").stdout)["others"] == ["mine"]
    assert cli("down").stdout == "mine: stopped; its nodes are bare\n"
    assert cli("down", "mine").returncode == 0


def test_plan_says_what_up_would_refuse_for(cli: Cli, tmp_path: Path) -> None:
    text = (ROOT / "profiles" / "tiny.yaml").read_text(encoding="utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (tmp_path / "profiles").mkdir()
        mine = text.replace("name: tiny\n", f"name: mine\nports: {{agent: {port}}}\n", 1)
        (tmp_path / "profiles" / "mine.yaml").write_text(mine, encoding="utf-8")
        done = cli("plan", "mine")
    assert done.returncode == 0, done.stderr
    assert f"up would refuse: node-a: should be port {port} free" in done.stdout
    assert "[PORT_TAKEN]" in done.stdout


def test_fit_answers_with_its_exit_code_and_in_json(cli: Cli) -> None:
    assert "27.425 GiB" in cli("fit", "deepseek-v4-flash-0731", "--nodes", "1").stdout
    done = cli("fit", "deepseek-v4-flash-0731", "--nodes", "1", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"], found["fit"]["nodes"]) == (3, "does not fit", 1)
    assert "89.121 GB" in cli("fit", "deepseek-v4-flash-0731", "--nodes", "2").stdout
    kimi = cli("fit", "kimi-k3")
    assert kimi.returncode == 0
    assert "what the label says                 13  16" in kimi.stdout
    assert "two of three articles found none" in kimi.stdout
    assert "separate agreement" in kimi.stdout
    assert cli("fit", "nemotron-3-ultra").returncode == 1


def test_profiles_are_listed_and_shown_with_their_evidence(cli: Cli) -> None:
    (line,) = (each for each in cli("profiles", "list").stdout.splitlines() if each.startswith("deepseek-v4-flash "))
    assert "nodes 2, 4, 8 " in line
    found = json.loads(cli("profiles", "list", "--json").stdout)
    assert {"tiny", "kimi-k3"} <= {each["name"] for each in found}
    shown = cli("profiles", "show", "kimi-k3").stdout
    assert "evidence" in shown
    assert "digest not known: `up` asks for it" in shown


def test_completion_of_a_deployment_offers_what_was_started_here_and_no_profiles(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "home/.config/sparkctl/keys"
    folder.mkdir(parents=True)
    (folder / "mine").touch()
    for verb, expected in (("down", "mine"), ("status", "mine"), ("logs", "mine"), ("plan", ",".join(PROFILES))):
        env = {"_SPARKCTL_COMPLETE": "bash_complete", "COMP_WORDS": f"sparkctl {verb} ", "COMP_CWORD": "2"}
        said = [line.partition(",")[2] for line in cli(env=env).stdout.splitlines()]
        assert ",".join(said) == expected
    assert 'eval "$(sparkctl completion bash)"' in cli("completion", "--help").stdout


def test_the_line_to_paste_after_up_reads_the_key_from_its_file(tmp_path: Path) -> None:
    made = plan(resolved(profile("tiny")))
    folder = tmp_path / "a key's folder"
    folder.mkdir()
    (folder / "tiny").write_text("sk-1\n")
    line = _curl(Finished(made, True, 1.0, folder / "tiny"))
    assert "sk-1" not in line
    shell = f"curl() {{ printf '%s\\n' \"$@\"; }}; {line}"
    words = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout.splitlines()
    assert words[0] == f"{made.gateway.endpoint}/chat/completions"
    assert "Authorization: Bearer sk-1" in words
    assert json.loads(words[-1])["model"] == "tiny"


def test_a_support_bundle_is_one_private_file_and_is_not_written_over(cli: Cli, tmp_path: Path) -> None:
    keys = tmp_path / "home/.config/sparkctl/keys"
    keys.mkdir(parents=True)
    (keys / "tiny").write_text("opensesame-opensesame\n")
    kept = tmp_path / "home/.local/state/sparkctl-failures/tiny-g1"
    kept.mkdir(parents=True)
    (kept / "node-a-0.log").write_text("ERROR it failed with opensesame-opensesame and HF_TOKEN=hf_abcdefghijkl\n")
    for name in ("plan.json", "events.jsonl", "findings.txt"):
        (kept / name).write_text("password=hunter2222\n")
    done = cli("support-bundle", "tiny", "--out", "b.tar.gz")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        texts = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            texts[member.name] = file.read().decode()
    assert texts["sparkctl-support/kept/tiny-g1/node-a-0.log"] == "ERROR it failed with *** and HF_TOKEN=***\n"
    assert "== end" in texts["sparkctl-support/cluster-embedded/node-a/facts.txt"]
    assert "sparkctl-support/versions.json" in texts
    for name in ("plan.json", "events.jsonl", "findings.txt"):
        assert texts[f"sparkctl-support/kept/tiny-g1/{name}"] == "password=***\n"
    assert (
        "->" in texts["sparkctl-support/cluster-embedded/findings.txt"]
        or "nothing but passes" in (texts["sparkctl-support/cluster-embedded/findings.txt"])
    )
    again = cli("support-bundle", "tiny", "--out", "b.tar.gz")
    assert (again.returncode, "File exists" in again.stderr) == (2, True)


def test_sixty_four_nodes_can_be_planned(cli: Cli, tmp_path: Path) -> None:
    wide(tmp_path)
    done = cli("plan", "wide", "--offline", "--executor", "mp", "--nodes", "64")
    assert done.returncode == 0, done.stderr
    assert "rank 63 on n64 at 10.0.0.64" in done.stdout


@pytest.mark.parametrize(
    "words", [("plan", "tiny", "--offline"), ("profiles", "list"), ("status", "--json"), ("--help",)]
)
def test_a_full_disk_behind_the_output_is_told_in_words(cli: Cli, words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.cli", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "this machine: No space left on device" in done.stderr


def test_a_state_folder_that_cannot_be_written_is_told_in_words(cli: Cli, tmp_path: Path) -> None:
    state = tmp_path / "home/.local/state"
    state.parent.mkdir(parents=True)
    state.write_text("a file where a folder should be")
    done = cli("up", "tiny")
    assert done.returncode in {1, 5}
    assert "sparkctl: " in done.stderr


def test_a_support_bundle_of_a_name_that_nobody_knows_is_refused(cli: Cli, tmp_path: Path) -> None:
    done = cli("support-bundle", "nope", "--out", "b.tar.gz")
    assert (done.returncode, "found nope" in done.stderr) == (2, True)
    assert not (tmp_path / "b.tar.gz").exists()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_an_empty_one(closed: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "orchestrator.cli", "diagnose", "-"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *argv]
    done = subprocess.run(shell, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stdout, b"Traceback" in done.stderr) == (2, b"", False)
    assert (b"standard input: should hold lines of a log, found none" in done.stderr) == ("2>&-" not in closed)


def test_a_plan_that_never_ends_is_no_plan(cli: Cli) -> None:
    done = cli("up", "--plan", "/dev/zero")
    assert done.returncode == 2
    assert "/dev/zero: should be a stored plan, found that it has more than 16000000 bytes" in done.stderr


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_kill_at_any_moment_ends_a_command_in_order(sent: signal.Signals, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    argv = [sys.executable, "-m", "orchestrator.cli", "diagnose", "log"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=PIPE, stderr=PIPE, text=True) as command:
        with (tmp_path / "log").open("wb"):  # opens once the command reads, in the middle of what guards nothing
            command.send_signal(sent)
            out, err = command.communicate(timeout=20)
        assert (command.returncode, out, err.strip()) == (130, "", "sparkctl: interrupted")
