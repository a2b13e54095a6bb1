"""What each figure shows, in a line, for :mod:`drbench.plots.registry` and ``drbench list``; this
module loads no matplotlib."""

SUMMARIES = {
    "mlp": "Figures 2 and 3 of the paper, both layers: percent of peak or GEMM-only speed by batch",
    "mlp1": "the left plot of Figures 2 and 3: MLP-1, n = 4k",
    "mlp2": "the right plot of Figures 2 and 3: MLP-2, k = 4n",
    "algorithms": "rate of each algorithm and data movement, with its interval",
    "libraries": "rate of drbench and of each library, with its interval",
    "best": "best layouts of each shape: time over layouts x replication x stationary",
    "layouts": "layouts beside timelines of all ranks, of drbench explain --save FILE.json",
    "partitions": "who stores which tile in each layout, of drbench explain --save FILE.json",
    "stationary": "what one rank fetches and adds to in a run, of drbench explain --save FILE.json",
    "frames": "four moments of one rank of a run, of drbench explain --save FILE.json",
    "timeline": "when a rank computed and communicated, of drbench run --timeline",
    "operations": "where the time of a layer goes in each sharding, of drbench chain --csv FILE",
    "strong": "strong scaling: time of one problem by ranks, and the share of the ideal",
    "weak": "weak scaling: rate a rank keeps as problem and ranks grow together",
    "history": "cases over dates, with their steps: share of GEMM-only speed, or time",
    "volume": "communication volume against time, one panel a shape",
    "bandwidth": "bandwidth of get, put, accumulate and collectives by size, beside a copy",
    "llm-weak": "MeshSlice, Figure 9: utilization as chips and batch grow",
    "llm-strong": "MeshSlice, Figure 12: utilization at one batch as chips grow",
    "llm-breakdown": "MeshSlice, Figure 10: time of communication in parts over that of GEMMs",
    "llm-shapes": "MeshSlice, Figure 11: utilization by GEMM shape",
    "llm-model": "MeshSlice, Figures 13, 14: utilization by mesh and slices, and by its cost model",
    "overlap-flux": "FLUX, Figures 4 and 11 to 13: time by m and method, and overlap efficiency",
    "overlap-flux-small": "FLUX, Figures 14 and 15: the same at small m, and on 16 GPUs",
    "overlap-td": "Triton-distributed, Figures 11 to 14, 17, 18: speedups, ours and the paper's",
}

#: Packages with figures.
PACKAGES = ["drbench.plots.figures"]


def add_figures(package: str) -> None:
    """Add the figures of a package: ``FIGURES`` of its modules, and of the module ``figures`` of
    its folders."""
    if package not in PACKAGES:
        PACKAGES.append(package)
