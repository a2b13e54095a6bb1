"""``drbench list --peers``: which peers can run here, and how to get the others."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from launch.host.show import console
from launch.peers import peers

__all__ = ["show_peers"]


def show_peers() -> None:
    """Print a table of the peers: here or not, what was found or is missing, how to get it."""
    table = Table(
        box=SIMPLE_HEAD,
        title="peers, for drbench run --algorithm NAME and drbench peers",
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    table.add_column("name", no_wrap=True)
    table.add_column("here", no_wrap=True)
    table.add_column("what")
    for peer in peers().values():
        found = peer.available()
        lines = [peer.about, found.what] if found.ok else [peer.about, f"{found.what}. {found.get}"]
        table.add_row(peer.name, "yes" if found.ok else "no", Text("\n".join(lines)))
    console().print(table)
