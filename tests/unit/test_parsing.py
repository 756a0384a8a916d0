"""What an operator reads when a file is wrong: the exact words, all at once, and quickly for hostile input."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from orchestrator.run.catalog import Catalog, open_catalog
from orchestrator.spec import parsing
from orchestrator.spec.cluster import Cluster
from orchestrator.spec.model import Model
from orchestrator.spec.parsing import parse, read
from orchestrator.spec.problems import Problem, SpecError
from orchestrator.spec.profile import Profile

ROOT = Path(__file__).parents[2]

PROFILE = """\
name: small
about: two words
model: some-model
stack: {ray: some-stack}
nodes: {min: 1, max: 2}
engine:
  served_name: small
  context_tokens: 4096
"""
CLUSTER = """\
nodes:
- name: a
  ssh: {host: 10.0.0.1, user: spark}
  rails: [{netdev: enp1s0f0np0, address: 192.168.100.11, rdma: rocep1s0f0}]
- name: b
  ssh: {host: 10.0.0.2}
  rails: [{netdev: enp1s0f0np0, address: 192.168.100.12}]
"""
MODEL = """\
name: m
about: a model
repository: owner/name
licence: MIT
context_tokens: 10
"""


def problems(text: str | bytes, kind: type[Profile | Cluster | Model] = Profile) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse(text, "x.yaml", kind)
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return [str(problem) for problem in caught.value.problems]


def test_a_good_file_is_a_frozen_value_with_tuples() -> None:
    cluster = parse(CLUSTER.encode(), "cluster.yaml", Cluster)
    assert [node.rails[0].address for node in cluster.nodes] == ["192.168.100.11", "192.168.100.12"]
    assert isinstance(cluster.nodes, tuple)
    assert cluster.nodes[1].ssh is not None
    assert cluster.nodes[1].ssh.port == 22


@pytest.mark.parametrize(
    "text",
    [
        PROFILE.replace("\n", "\r\n"),
        "\ufeff" + PROFILE,
        "---\n" + PROFILE + "...\n",
        "%YAML 1.2\n---\n" + PROFILE,
        "# a comment\n\n" + PROFILE,
    ],
    ids=["crlf", "bom", "document marks", "directive", "comment"],
)
def test_forms_of_the_same_file(text: str) -> None:
    assert parse(text, "x.yaml", Profile) == parse(PROFILE, "x.yaml", Profile)


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("1_048_576", 1048576),
        ("0x10", 16),
        ("-7", -7),
        ("1e3", 1000.0),
        ("2.50", 2.5),
        ("true", True),
        ("False", False),
        ("2026-11-30", "2026-11-30"),
        ("22:22", "22:22"),
        ("1.2.3", "1.2.3"),
        ('"010"', "010"),
        ("'no'", "no"),
        ("y", "y"),
        ("---a", "---a"),
        ("[1, a]", [1, "a"]),
        ("|\n  two\n  lines", "two\nlines"),
    ],
)
def test_what_words_mean(written: str, means: object) -> None:
    value = read(f"key: {written}", "x.yaml").value
    assert isinstance(value, dict)
    assert value["key"] == means
    assert type(value["key"]) is type(means)


WRONG: list[tuple[str, list[str]]] = [
    (
        PROFILE.replace("  context_tokens", "  contxt_tokens"),
        [
            "x.yaml engine/context_tokens: should be given, found nothing (line 6)",
            "x.yaml engine/contxt_tokens: unknown key; did you mean context_tokens? (line 8)",
        ],
    ),
    (
        PROFILE + "  pipeline: '2'\n  max_seqs: 0\n",
        [
            'x.yaml engine/pipeline: should be a whole number, found "2"; take the quotes off (line 9)',
            "x.yaml engine/max_seqs: should be at least 1, found 0 (line 10)",
        ],
    ),
    (
        PROFILE.replace("served_name: small", 'served_name: "--host"'),
        [
            "x.yaml engine/served_name: should be a letter or digit, then letters, digits and any of . _ : / @ -, "
            'found "--host" (line 7)'
        ],
    ),
    (PROFILE + "served_name: a\n", ["x.yaml served_name: unknown key; did you mean engine/served_name? (line 9)"]),
    (
        PROFILE + "ray: {zz: 1}\n",
        ["x.yaml ray/zz: unknown key; known here are object_store_bytes, memory_bytes, cpus (line 9)"],
    ),
    (
        PROFILE + "executor: rei\n",
        ["x.yaml executor: should be ray or mp, found rei (line 9)"],
    ),
    (
        PROFILE + "executor: mp\n",
        ["x.yaml stack: should name a stack for executor mp, found ray (line 4)"],
    ),
    (
        PROFILE.replace("{min: 1, max: 2}", "{min: 3, max: 2}"),
        ["x.yaml nodes/max: should be at least min (3), found 2 (line 5)"],
    ),
    (
        PROFILE.replace("ray: some-stack", "raay: Some Stack"),
        [
            "x.yaml stack/raay: the key should be ray or mp, found raay (line 4)",
            "x.yaml stack/raay: should be a name of letters a-z, digits, inner hyphens and dots, at most 42 long, "
            "found Some Stack (line 4)",
        ],
    ),
    (PROFILE + "  kv_dtype: no\n", ["x.yaml engine/kv_dtype: should be text, found no; put it in quotes (line 9)"]),
    (
        PROFILE + "  kv_dtype: false\n",
        ["x.yaml engine/kv_dtype: should be text, found false; put it in quotes (line 9)"],
    ),
    (
        PROFILE + "  enforce_eager: on\n",
        [
            "x.yaml engine/enforce_eager: should be true or false, or in quotes when text is meant, found on (line 9)",
        ],
    ),
    (
        PROFILE + "  enforce_eager: 'true'\n",
        ['x.yaml engine/enforce_eager: should be true or false, found "true"; take the quotes off (line 9)'],
    ),
    (
        PROFILE + "  pipeline: 010\n",
        [
            "x.yaml engine/pipeline: should be a number without a leading zero, or in quotes when text is meant, "
            "found 010 (line 9)",
        ],
    ),
    (PROFILE + "  pipeline: 2.0\n", ["x.yaml engine/pipeline: should be a whole number, found 2.0 (line 9)"]),
    (PROFILE + "  pipeline: 2026-11-30\n", [
        "x.yaml engine/pipeline: should be a whole number, found 2026-11-30 (line 9)"]),
    (
        PROFILE + "  memory_utilization: .nan\n",
        ["x.yaml engine/memory_utilization: should be a finite number, found .nan (line 9)"],
    ),
    (
        PROFILE + "  memory_utilization: 1e999\n",
        ["x.yaml engine/memory_utilization: should be a finite number, found 1e999 (line 9)"],
    ),
    (PROFILE + "  memory_utilization: 1.5\n", [
        "x.yaml engine/memory_utilization: should be at most 0.99, found 1.5 (line 9)"]),
    (
        PROFILE + "  block_size: 99999999999999999999\n",
        [
            "x.yaml engine/block_size: should be a number up to 9223372036854775807, "
            "found 99999999999999999999 (line 9)"
        ],
    ),
    (
        PROFILE.replace("about: two words", "about: [two, words]"),
        ["x.yaml about: should be text, found a list (line 2)"],
    ),
    (
        PROFILE.replace("about: two words", "about: "),
        ["x.yaml about: should be text, found nothing (line 2)"],
    ),
    (PROFILE + "env: {1: a}\n", [
        "x.yaml env/1: a key should be text, found 1; put it in quotes (line 9)",
    ]),
    (PROFILE + "env: {A: 1, B-C: x}\n", [
        "x.yaml env/A: should be text, found 1; put it in quotes (line 9)",
        "x.yaml env/B-C: the key should be a variable name of letters, digits and underscores, found B-C (line 9)",
    ]),
    (PROFILE + "engine_args: {a: {b: 1}, c: [x, 1]}\n", [
        "x.yaml engine_args/a: should be true or false, a whole number, a number, text or a list, "
        "found a mapping (line 9)",
        "x.yaml engine_args/c/1: should be text, found 1; put it in quotes (line 9)",
    ]),
    (PROFILE + 'env: {A: "a\\0b"}\n', [
        'x.yaml env/A: should be text without NUL characters, found "a\\u0000b" (line 9)',
    ]),
    (PROFILE + "readiness: {backoff_s: []}\n", [
        "x.yaml readiness/backoff_s: should be at least 1 entry long, found an empty list (line 9)",
    ]),
    (PROFILE + "name: other\n", ["x.yaml name: should be there once, found again on line 9 (line 1)"]),
    (PROFILE + "env: {<<: {A: b}}\n", [
        "x.yaml env/<<: merge keys are not read here; write the keys out (line 9)",
    ]),
    (PROFILE.replace("name: small", "name: &n small", 1) + "notes: [*n]\n", [
        "x.yaml name: should be without an anchor, found &n; write values out (line 1)",
        "x.yaml notes/0: should be written out, found the alias *n (line 9)",
    ]),
    (PROFILE + "notes: [!!python/name:os.system x]\n", [
        "x.yaml notes/0: should be without a tag, found tag:yaml.org,2002:python/name:os.system (line 9)",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), WRONG, ids=range(len(WRONG)))
def test_wrong_profiles(text: str, says: list[str]) -> None:
    assert problems(text) == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: []\n", ["x.yaml nodes: should be at least 1 entry long, found an empty list (line 1)"]),
        (
            CLUSTER.replace("192.168.100.12", "192.168.100.11"),
            ["x.yaml nodes: address 192.168.100.11 should be of one node, found on a and b (line 1)"],
        ),
        (
            CLUSTER.replace("192.168.100.12", "192.168.100"),
            [
                "x.yaml nodes/1/rails/0/address: should be an IPv4 address such as 192.168.100.11, "
                "found 192.168.100 (line 7)"
            ],
        ),
        (
            CLUSTER + "gateway: {node: c, port: 70000}\n",
            ["x.yaml gateway/port: should be at most 65535, found 70000 (line 8)"],
        ),
        (
            CLUSTER + "gateway: {address: desk.local}\n",
            [
                "x.yaml gateway/address: should be an IP address such as 192.168.1.20, or 0.0.0.0 for all, "
                "found desk.local (line 8)"
            ],
        ),
        (CLUSTER + "gateway: {node: c}\n", ["x.yaml gateway/node: should be one of a, b, found c (line 8)"]),
        (
            CLUSTER.replace("host: 10.0.0.1, user: spark", 'host: "-oProxyCommand=x y", user: 1'),
            [
                'x.yaml nodes/0/ssh/host: should be a host name or address, found "-oProxyCommand=x y" (line 3)',
                "x.yaml nodes/0/ssh/user: should be text, found 1; put it in quotes (line 3)",
            ],
        ),
    ],
)
def test_wrong_clusters(text: str, says: list[str]) -> None:
    assert problems(text, Cluster) == says


def test_a_model_without_an_origin() -> None:
    says = "x.yaml: should have either repository (and revision) or made_by, found both or neither (line 1)"
    assert problems(MODEL.replace("repository: owner/name\n", ""), Model) == [says]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "x.yaml: should be a mapping of keys to values, found an empty file"),
        ("# nothing\n", "x.yaml: should be a mapping of keys to values, found an empty file"),
        ("- a\n- b\n", "x.yaml: should be a mapping of keys to values, found a list (line 1)"),
        ("just text", "x.yaml: should be a mapping of keys to values, found just text (line 1)"),
        ("a: 1\n---\nb: 2\n", "x.yaml: should be one document, found a second one (line 2)"),
        ("[a]: b", "x.yaml: a key should be text, found a list (line 1)"),
        ("a: b: c", "x.yaml: should be YAML, found a mistake in column 5: mapping values are not allowed in this "
                    "context; put text that holds a colon in quotes, and indent keys of one mapping alike (line 1)"),
        ("a: @b", "x.yaml: should be YAML, found a mistake in column 4: found character that cannot start any token; "
                  "put text that starts with @, `, % or such in quotes (line 1)"),
        ("a: 1\n\tb: 2", "x.yaml: should be YAML, found a mistake in column 1: found a tab character that violates "
                         "indentation; indent with spaces, not with tabs (line 2)"),
        ('a:\n  b: "x\n', "x.yaml: should be YAML, found a mistake in column 1: found unexpected end of stream "
                          "while scanning a quoted scalar that starts on line 2 (line 3)"),
        (b"\xff\xfea", "x.yaml: should be UTF-8 text, found byte 0xff at byte 0"),
        (b"name: caf\xe9", "x.yaml: should be UTF-8 text, found byte 0xe9 at byte 9"),
        ("a: 1\nb: \x00", "x.yaml: should be printable text, found character U+0000 in column 4 (line 2)"),
        ("a: \ud800", "x.yaml: should be printable text, found character U+D800 in column 4 (line 1)"),
        ("a: " + "[" * 40 + "]" * 40, "x.yaml: should be nested at most 32 deep, found deeper (line 1)"),
        ("a: " + "x" * 10_000_000, "x.yaml: should be at most 1000000 bytes, found 10000003"),
        ("a: [" + "1," * 9000 + "]", "x.yaml: should hold at most 6000 keys and values, found more (line 1)"),
    ],
)  # fmt: skip
def test_what_is_no_such_yaml(text: str | bytes, says: str) -> None:
    assert problems(text) == [says]


def test_the_limits_are_not_one_too_small() -> None:
    nested = PROFILE + "  compilation: {a: " + "[" * 29 + "]" * 29 + "}\n"
    assert parse(nested, "x.yaml", Profile).engine.compilation is not None
    big = PROFILE + "notes: ['" + "x" * (parsing.MOST_BYTES - len(PROFILE) - 13) + "']\n"
    assert len(parse(big, "x.yaml", Profile).notes[0]) > 990_000


def test_what_is_found_is_shown_short_and_on_one_line() -> None:
    (long,) = problems(PROFILE + "  kv_dtype: '" + "x " * 500 + "'\n")
    assert long.endswith('found "' + "x " * 29 + 'x…" (line 9)')
    (lines,) = problems(PROFILE + '  kv_dtype: "a\\nb\\e[31m"\n')
    assert lines.endswith('found "a\\nb\\u001b[31m" (line 9)')


def test_thousands_of_problems_are_cut_short() -> None:
    said = problems(PROFILE + "".join(f"key-{number}: 1\n" for number in range(2000)))
    assert len(said) == 41
    assert said[0].startswith("x.yaml key-0: unknown key")
    assert said[-1].endswith("more problems")


HOSTILE = {
    "aliases": "a: &a [x]\n" + "".join(f"b{n}: &b{n} [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" for n in range(2000)),
    "one big scalar": "x: " + "a" * 10_000_000,
    "flow lists": "[" * 900_000,
    "flow maps": "{" * 900_000,
    "block lists": "- " * 450_000,
    "keys of keys": "? " * 450_000,
    "many items": "x: [" + "1," * 450_000 + "]",
    "anchors": "&a " * 300_000,
    "tags": "x: [" + "!!a b," * 150_000 + "]",
    "quotes": "'a\n\n" * 220_000,
    "escapes": '"' + "\\" * 900_000,
    "digits": PROFILE + "shm_bytes: " + "9" * 900_000,
    "repeated keys": "a: 1\n" * 180_000,
    "a long key": "a" * 900 + ": 1\n" + "b" * 900_000,
    "blank lines": "a: |\n" + "\n" * 900_000,
    "comments": "#\n" * 450_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_at_once(name: str) -> None:
    began = time.process_time()
    problems(HOSTILE[name])
    # Processor time, and ten times what it takes: a bomb takes minutes or all memory.
    assert time.process_time() - began < 1.0


def found_in(text: str) -> tuple[Problem, ...]:
    try:
        parse(text, "x.yaml", Profile)
    except SpecError as error:
        return error.problems
    return ()


def test_broken_files_never_end_in_a_traceback() -> None:
    dice = random.Random(7)
    pieces = [
        *"[]{}:,-?&*!|>'\"%@`#\n\t ~<=.",
        "  ",
        "- ",
        ": ",
        "name",
        "1",
        "yes",
        "<<",
        "&a",
        "*a",
        "!!x",
        "\\x",
        "é",
    ]
    for _ in range(1500):
        text = PROFILE + "".join(dice.choice(pieces) for _ in range(dice.randrange(1, 30)))
        at = dice.randrange(len(text))
        for variant in (text, text[:at] + dice.choice(pieces) + text[at + 1 :], text[at:]):
            for problem in found_in(variant):
                assert "\n" not in str(problem)


@pytest.mark.parametrize("text", [case[0] for case in WRONG], ids=range(len(WRONG)))
def test_without_libyaml_the_same_is_read(text: str) -> None:
    slow, fast = read(text, "x.yaml", yaml.SafeLoader), read(text, "x.yaml")
    assert (slow.value, slow.problems) == (fast.value, fast.problems)
    assert dict(slow.marks) == dict(fast.marks)


def test_problems_sort_as_in_the_file() -> None:
    error = SpecError([Problem("x", "b", line=9), Problem("x", "a", line=2), Problem("x", "c")])
    assert str(error) == "x: c\nx: a (line 2)\nx: b (line 9)"


# The catalog: where names are looked for, and what is said when they are not there.


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place with three roots: ``here`` (the current directory), ``config`` and ``shipped``."""
    for root in ("here", "config/sparkctl", "shipped"):
        for folder in ("profiles", "pins/stacks", "pins/models"):
            (tmp_path / root / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SPARKCTL_CLUSTER", raising=False)
    (tmp_path / "shipped/profiles/small.yaml").write_text(PROFILE)
    (tmp_path / "shipped/profiles/tiny.yaml").write_text(PROFILE.replace("name: small", "name: tiny"))
    (tmp_path / "shipped/pins/models/m.yaml").write_text(MODEL)
    return tmp_path


def catalog(home: Path, cluster: Path | None = None) -> Catalog:
    return Catalog((home / "here", home / "config/sparkctl"), shipped=home / "shipped", cluster_path=cluster)


def refusal(home: Path, name: str) -> str:
    with pytest.raises(SpecError) as caught:
        catalog(home).profile(name)
    return str(caught.value)


def test_what_stands_first_wins(home: Path) -> None:
    assert catalog(home).profile("small").about == "two words"
    (home / "config/sparkctl/profiles/small.yaml").write_text(PROFILE.replace("two words", "mine"))
    assert catalog(home).profile("small").about == "mine"
    (home / "here/profiles/small.yaml").write_text(PROFILE.replace("two words", "here"))
    assert catalog(home).profile("small").about == "here"
    assert catalog(home).names() == ("small", "tiny")
    assert catalog(home).names("model") == ("m",)
    assert catalog(home).model("m").licence == "MIT"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("smal", "profile smal: there is no such profile; did you mean small? There is small, tiny"),
        ("tinny", "profile tinny: there is no such profile; did you mean tiny? There is tiny, small"),
        ("zzz", "profile zzz: there is no such profile; there is small, tiny"),
        *[
            (
                path,
                "profile: should be the name of a profile, not a path (files are looked for in profiles/ here and in "
                f"~/.config/sparkctl/), found {path}; there is tiny, small",
            )
            for path in ("./tiny.yaml", "/etc/tiny", "../../tiny", "tiny.yaml", "tiny.yml", "a\\tiny")
        ],
        (
            "Tiny",
            "profile: should be the name of a profile (letters a-z, digits, inner hyphens and dots, at most 42), "
            "found Tiny; there is tiny, small",
        ),
        (
            "",
            "profile: should be the name of a profile (letters a-z, digits, inner hyphens and dots, at most 42), "
            "found nothing; there is small, tiny",
        ),
        (
            "tiny\n",
            "profile: should be the name of a profile (letters a-z, digits, inner hyphens and dots, at most 42), "
            "found tiny\\n; there is tiny, small",
        ),
    ],
)
def test_names_that_are_none(home: Path, name: str, says: str) -> None:
    assert refusal(home, name) == says


def test_a_path_is_refused_before_any_file_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.yaml")
    with pytest.raises(SpecError, match="not a path"):
        Catalog((tmp_path,)).profile(str(tmp_path / "x"))


def test_the_name_inside_is_the_name_of_the_file(home: Path) -> None:
    (home / "here/profiles/other.yaml").write_text(PROFILE)
    assert refusal(home, "other") == "profiles/other.yaml name: should be other, as the file is called, found small"


def test_files_that_are_no_files(home: Path) -> None:
    profiles = home / "here/profiles"
    (profiles / "a.yaml").mkdir()
    os.mkfifo(profiles / "b.yaml")
    (home / "secret").write_text(PROFILE)
    (profiles / "c.yaml").symlink_to(home / "secret")
    (profiles / "d.yaml").symlink_to("nowhere")
    (profiles / "e.yaml").symlink_to("e.yaml")
    (profiles / "f.yaml").symlink_to("/dev/zero")
    (profiles / "g.yaml").write_text("x" * 2_000_000)
    (profiles / "h.yml").write_text(PROFILE)
    assert refusal(home, "a") == "profiles/a.yaml: should be a regular file, found a directory"
    assert refusal(home, "b") == "profiles/b.yaml: should be a regular file, found a FIFO"
    assert refusal(home, "c") == f"profiles/c.yaml: should be a file of profiles/, found a link to {home}/secret"
    assert refusal(home, "d") == "profiles/d.yaml: should be a file, found a link to nothing"
    assert refusal(home, "e").startswith("profiles/e.yaml: should be readable, found ")
    assert refusal(home, "f") == "profiles/f.yaml: should be a file of profiles/, found a link to /dev/zero"
    assert refusal(home, "g") == "profiles/g.yaml: should be at most 1000000 bytes, found 2000000"
    assert refusal(home, "h") == "profile: should end in .yaml, found profiles/h.yml; rename it"


def test_a_file_that_may_not_be_read(home: Path) -> None:
    path = home / "here/profiles/small.yaml"
    path.write_text(PROFILE)
    path.chmod(0)
    as_anyone = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all") if os.geteuid() == 0 else ()
    argv = (*as_anyone, sys.executable, "-m", "orchestrator.cli", "profiles", "show", "small")
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": ""}
    done = subprocess.run(argv, cwd=home / "here", env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "profiles/small.yaml: should be readable by you, found permission denied; chmod u+r " in done.stderr


def test_the_cluster_file(home: Path) -> None:
    assert catalog(home).cluster() is None
    (home / "shipped/cluster.yaml").write_text(CLUSTER)
    assert catalog(home).cluster() is None
    (home / "dotfiles.yaml").write_text(CLUSTER)
    (home / "config/sparkctl/cluster.yaml").symlink_to(home / "dotfiles.yaml")
    found = catalog(home).cluster()
    assert found is not None
    assert found.name == "home"
    (home / "here/cluster.yaml").write_text("name: desk\n" + CLUSTER)
    found = catalog(home).cluster()
    assert found is not None
    assert found.name == "desk"
    (home / "here/cluster.yaml").write_text("nodes: 3\n")
    with pytest.raises(SpecError, match=r"^cluster.yaml nodes: should be a list, found 3 \(line 1\)$"):
        catalog(home).cluster()


def test_a_cluster_file_that_is_asked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "lab.yaml").write_text("name: lab\n" + CLUSTER)
    monkeypatch.setenv("SPARKCTL_CLUSTER", str(home / "lab.yaml"))
    found = open_catalog().cluster()
    assert found is not None
    assert found.name == "lab"
    with pytest.raises(SpecError, match=r"^/no/such\.yaml: should be a cluster file, found nothing; docs/cluster"):
        open_catalog("/no/such.yaml").cluster()


def test_what_travels_with_the_package_is_found_from_anywhere(home: Path) -> None:
    shipped = open_catalog()
    assert shipped.roots == (home / "here", home / "config/sparkctl")
    assert shipped.shipped is not None
    assert (shipped.shipped / "profiles").is_dir()


@pytest.mark.parametrize("key", ["repo_bytes", "weights_bytes", "tensor_bytes"])
def test_a_model_has_a_size_above_zero(key: str) -> None:
    card = f"name: m\nabout: m\nmade_by: make\nlicence: MIT\n{key}: 0\n"
    with pytest.raises(SpecError) as caught:
        parse(card, "m.yaml", Model)
    assert f"m.yaml {key}: should be at least 1, found 0" in str(caught.value)
