"""Builds each page's content from one read of the database."""

from dpledger.dashboard.views.dataset import DatasetPage, dataset_page
from dpledger.dashboard.views.datasets import DatasetsPage, datasets_page
from dpledger.dashboard.views.entries import ROWS, EntriesPage, EntryQuery
from dpledger.dashboard.views.left import Left
from dpledger.dashboard.views.run import RunPage, run_page
from dpledger.dashboard.views.spenders import MOST_SPENDERS

__all__ = [
    "MOST_SPENDERS",
    "ROWS",
    "DatasetPage",
    "DatasetsPage",
    "EntriesPage",
    "EntryQuery",
    "Left",
    "RunPage",
    "dataset_page",
    "datasets_page",
    "run_page",
]
