"""The compiled parts of the fast simulators: one data structure or station per file.

Kernels are plain functions over named tuples of arrays (:mod:`state`); Numba compiles them on
first use and keeps the result on disk (:mod:`compile`).
"""
