"""Commands describe the experts of a layer: their number, their tokens, and the routing."""

SIZES = "-m 64 -n 32 -k 16 -o experts=4 -o topk=2".split()
LAYER = "C = A · B, 64 tokens to 2 of 4 experts each (skewed:1), experts 16x32"


def test_a_plan_lists_the_experts(run_cli):
    words = ["plan", "-p", "2", *SIZES, "-o", "routing=skewed:1", "--algorithm", "moe_rs2"]
    shown = run_cli(*words).stdout
    assert LAYER in shown and "moe_rs2" in shown


def test_without_experts_there_are_eight_and_a_token_has_two(run_cli):
    words = ["plan", "-p", "2", *SIZES[:6], "--algorithm", "ag_moe"]
    assert "64 tokens to 2 of 8 experts each (uniform), experts 16x32" in run_cli(*words).stdout


def test_a_program_of_one_b_takes_no_experts(run_cli):
    ended = run_cli("plan", "-p", "2", *SIZES, "--algorithm", "ag_gemm")
    assert "ag_gemm takes no experts" in ended.stderr
