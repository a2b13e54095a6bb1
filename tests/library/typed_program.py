"""What a type checker knows of a program with drbench: ``make lint`` reads it, nothing runs."""

from typing import assert_type

import drbench

with drbench.init(heap="1M") as ctx:
    A = ctx.zeros((4, 4), "row")
    assert_type(drbench.multiply(A, A.T), drbench.Matrix)
    drbench.multiply(A, 3)  # type: ignore[arg-type]

case = drbench.Case(4, 4, 4)
assert_type(drbench.simulate(case, "pvc12"), drbench.Prediction)
assert_type(drbench.tune(case, "pvc12"), drbench.Choice)
assert_type(drbench.explain(case, "pvc12"), drbench.Page)
