"""Draw the MLP-1 figure: ``python plots/plot_mlp1.py < mlp1.txt`` (step T4 of ARTIFACT.md).

This is ``drbench plot mlp1 - --axis paper``, and takes more files and the options of that.
"""

if __name__ == "__main__":
    import sys
    from pathlib import Path
    from runpy import run_module

    # the folder of the packages, instead of the script's own
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.argv[1:] = ["plot", "mlp1", "-", "--axis", "paper", *sys.argv[1:]]
    run_module("drbench", run_name="__main__")
