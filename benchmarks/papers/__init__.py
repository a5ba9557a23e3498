"""The experiments of the papers that this project implements, figure by figure.

``python -m benchmarks.papers FIGURE`` runs what a figure needs, keeps each result in a file of JSON lines,
and draws the figure. Every private run asks a ledger in the same process, and is charged by sound accounting.
"""
