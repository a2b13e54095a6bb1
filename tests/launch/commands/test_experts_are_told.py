"""What commands say of products of experts: how many, of how many tokens, and who gets how much."""

SIZES = ["-m", "64", "-n", "32", "-k", "16", "--experts", "4", "--topk", "2"]
TOLD = "C = A · B, 64 tokens to 2 of 4 experts each (skewed:1), experts 16x32"


def test_a_plan_says_what_experts_there_are(say):
    words = ["plan", "-p", "2", *SIZES, "--routing", "skewed:1", "--algorithm", "moe_rs2"]
    shown = say(*words).stdout
    assert TOLD in shown and "moe_rs2" in shown


def test_without_a_model_shares_are_of_the_work_of_all_pairs(say):
    words = ["tune", "-p", "2", *SIZES, "--routing", "skewed:1", "--only", "ag_moe"]
    shown = say(*words).stdout
    assert TOLD in shown
    assert "1.00 x share" in shown and "2.00 x share" not in shown


def test_the_pick_over_nodes_is_among_the_candidates_and_its_command_takes_devices(say):
    words = ["tune", "-p", "4", "--machine", "h800", "--only", "ag2_moe,moe_rs2", *SIZES]
    shown = say(*words, "-m", "512").stdout
    assert "ag2_moe" in shown and "moe_rs2" in shown
    (command,) = (line for line in shown.splitlines() if line.startswith("Run the first:"))
    assert "--dtype bfloat16:float32 --backend cupy" in command and "--topk 2" in command
    assert "--per-node" in command
