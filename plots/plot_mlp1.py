"""Draw the MLP-1 figure: ``python plots/plot_mlp1.py < mlp1.txt`` (step T4 of ARTIFACT.md)."""

if __name__ == "__main__":
    import sys
    from pathlib import Path

    # the folder of the packages, instead of the script's own
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from plots.from_stdin import main

    sys.exit(main("mlp1"))
