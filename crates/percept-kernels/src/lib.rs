//! The muscle of percept: CPU kernels on slices
