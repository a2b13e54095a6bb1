"""Draw the MLP-2 figure: ``python plots/plot_mlp2.py < mlp2.txt`` (step T4 of ARTIFACT.md).

This is ``drbench plot mlp2 - --axis paper``, and takes more files and the options of that.
"""

if __name__ == "__main__":
    import sys
    from pathlib import Path
    from runpy import run_module

    # the folder of the packages, instead of the script's own
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.argv[1:] = ["plot", "mlp2", "-", "--axis", "paper", *sys.argv[1:]]
    run_module("drbench", run_name="__main__")
