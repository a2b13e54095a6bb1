"""Draw the MLP-2 figure: ``python plots/plot_mlp2.py < mlp2.txt`` (step4 of ARTIFACT.md), or
``python plots/plot_mlp2.py mlp2.txt``, is ``drbench plot mlp2``; options and further
files as there. Standard input is read without files, and next to files if it has data."""

if __name__ == "__main__":
    import runpy
    import sys
    from pathlib import Path

    # the folder of the packages, instead of the script's own
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from drbench.plots.select.records import with_input

    sys.argv[1:] = ["plot", "mlp2", *with_input(sys.argv[1:])]
    runpy.run_module("drbench", run_name="__main__", alter_sys=True)
