"""Draw the MLP-1 figure: ``python plots/plot_mlp1.py < mlp1.txt`` (step T4 of ARTIFACT.md) is
``drbench plot mlp1 - --axis paper``; options and further files as there."""

if __name__ == "__main__":
    import runpy
    import sys
    from pathlib import Path

    # the folder of the packages, instead of the script's own
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.argv[1:1] = ["plot", "mlp1", "-", "--axis", "paper"]
    runpy.run_module("drbench", run_name="__main__", alter_sys=True)
