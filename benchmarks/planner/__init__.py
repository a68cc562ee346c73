"""Compare the planner with the figures of the Skyplane paper, on measured grids; one file per group of figures."""
