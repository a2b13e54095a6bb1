"""Chains of layers for tests."""

from drbench.chains.model.description import read


def layers(rows, widths, between=(), *, backward=False):
    """X·W1 → f → ·W2 → … of these widths, with one function between all multiplications, or one
    each."""
    inner = len(widths) - 2
    of = [*(between * inner if len(between) == 1 else between or [None] * inner), None]
    text, x = [f"X = input({rows}, {widths[0]})"], "X"
    for number, (high, wide) in enumerate(zip(widths, widths[1:]), 1):
        wide *= 2 if (of[number - 1] or "").endswith("glu") else 1
        text += [f"W{number} = weight({high}, {wide})", f"Y{number} = {x} @ W{number}"]
        x = f"Y{number}"
        if of[number - 1]:
            text.append(f"H{number} = {of[number - 1]}({x})")
            x = f"H{number}"
    return read("\n".join(text), "layers", backward=backward)
