"""Builds each page's content from one read of the database."""

from dpledger.dashboard.views.dataset import RANGES, DatasetPage, Places, dataset_page
from dpledger.dashboard.views.datasets import DatasetsPage, datasets_page
from dpledger.dashboard.views.entries import ROWS, EntriesPage, EntryQuery
from dpledger.dashboard.views.left import Left
from dpledger.dashboard.views.run import RunPage, run_page
from dpledger.dashboard.views.spenders import MOST_SPENDERS, runs_page

__all__ = [
    "MOST_SPENDERS",
    "RANGES",
    "ROWS",
    "DatasetPage",
    "DatasetsPage",
    "EntriesPage",
    "EntryQuery",
    "Left",
    "Places",
    "RunPage",
    "dataset_page",
    "datasets_page",
    "run_page",
    "runs_page",
]
