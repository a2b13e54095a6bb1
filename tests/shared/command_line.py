"""Every command of the command line, by the words it is called with."""

from launch.commands.cli import Group, cli


def found(group: Group, before: str = "") -> dict:
    """Commands of a group and of the groups in it, hidden ones too."""
    commands = {}
    for name in group.commands:
        each = group.commands[name]
        commands[f"{before}{name}"] = each
        if isinstance(each, Group):
            commands |= found(each, f"{before}{name} ")
    return commands


COMMANDS = found(cli)
