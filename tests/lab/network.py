"""The lab's wires: a management bridge here, two fabric bridges in a namespace of their own, a namespace per node.

Pure: each function returns `ip` commands. Names all start with `sparklab`, so that leftovers are known by name.
"""

from dataclasses import dataclass

Command = tuple[str, ...]

BRIDGE = "sparklab0"
SWITCH = "sparklab-switch"
BLACKHOLE: Command = ("blackhole", "10.77.0.0/16", "metric", "9999")
MANAGEMENT = "10.77.0"
MANAGEMENT_NETDEV = "enP7s7"
FABRIC_MTU = 9000
_FIRST_HOST = 10  # spark-1 is .11, spark-2 is .12


@dataclass(frozen=True)
class Rail:
    """One fabric link of every node: its device there, the first three numbers of its addresses, its bridge."""

    netdev: str
    subnet: str
    bridge: str


RAILS = (Rail("enp1s0f0np0", "10.77.100", "rail0"), Rail("enP2p1s0f0np0", "10.77.101", "rail1"))


def namespace(number: int) -> str:
    """The network namespace of node `number` (from 1)."""
    return f"sparklab-{number}"


def management_port(number: int) -> str:
    """The device on this machine that node `number`'s management link ends in."""
    return f"sparklab-m{number}"


def switch_port(number: int, rail: int) -> str:
    """The device in the switch's namespace that a node's fabric link ends in."""
    return f"r{rail}-{number}"


def address(subnet: str, number: int) -> str:
    """Node `number`'s address in a subnet, without prefix length."""
    return f"{subnet}.{_FIRST_HOST + number}"


def up(count: int) -> list[Command]:
    """What brings the wires of `count` nodes up."""
    commands: list[Command] = [
        ("ip", "route", "replace", *BLACKHOLE),  # lab addresses never leave this machine
        ("ip", "link", "add", BRIDGE, "type", "bridge"),
        ("ip", "addr", "add", f"{MANAGEMENT}.254/24", "dev", BRIDGE),
        ("ip", "link", "set", BRIDGE, "up"),
        ("ip", "netns", "add", SWITCH),
    ]
    for rail in RAILS:
        commands.append(("ip", "-n", SWITCH, "link", "add", rail.bridge, "type", "bridge"))
        commands.append(("ip", "-n", SWITCH, "link", "set", rail.bridge, "mtu", str(FABRIC_MTU), "up"))
    for number in range(1, count + 1):
        commands += _node_up(number)
    return commands


def _node_up(number: int) -> list[Command]:
    inside, outside = namespace(number), management_port(number)
    in_node, in_switch = ("ip", "-n", inside), ("ip", "-n", SWITCH)
    commands: list[Command] = [
        ("ip", "netns", "add", inside),
        (*in_node, "link", "set", "lo", "up"),
        # What systemd sets on every machine, but may not set in a container: any user may ping.
        ("ip", "netns", "exec", inside, "sh", "-c", "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range"),
        ("ip", "link", "add", outside, "type", "veth", "peer", "name", MANAGEMENT_NETDEV, "netns", inside),
        ("ip", "link", "set", outside, "master", BRIDGE, "up"),
        (*in_node, "addr", "add", f"{address(MANAGEMENT, number)}/24", "dev", MANAGEMENT_NETDEV),
        (*in_node, "link", "set", MANAGEMENT_NETDEV, "up"),
    ]
    for index, rail in enumerate(RAILS):
        port, mtu = switch_port(number, index), ("mtu", str(FABRIC_MTU))
        commands += [
            (*in_switch, "link", "add", port, "type", "veth", "peer", "name", rail.netdev, "netns", inside),
            (*in_switch, "link", "set", port, *mtu, "master", rail.bridge, "up"),
            (*in_node, "addr", "add", f"{address(rail.subnet, number)}/24", "dev", rail.netdev),
            (*in_node, "link", "set", rail.netdev, *mtu, "up"),
        ]
    return commands


def down(count: int) -> list[Command]:
    """What takes the wires down. Each command may fail because its object is already gone."""
    commands: list[Command] = []
    for number in range(1, count + 1):
        commands.append(("ip", "link", "del", management_port(number)))
        commands += [("ip", "-n", SWITCH, "link", "del", switch_port(number, rail)) for rail in range(len(RAILS))]
        commands.append(("ip", "netns", "del", namespace(number)))
    commands += [("ip", "netns", "del", SWITCH), ("ip", "link", "del", BRIDGE), ("ip", "route", "del", *BLACKHOLE)]
    return commands
