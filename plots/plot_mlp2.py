"""Draw the MLP-2 figure: ``python plots/plot_mlp2.py < mlp2.txt`` (step T4 of ARTIFACT.md)."""

if __name__ == "__main__":
    import sys
    from pathlib import Path

    # the folder of the packages, instead of the script's own
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from plots.from_stdin import main

    sys.exit(main("mlp2"))
