"""scikit-learn estimators that ask the ledger: needs the extra ``sklearn``."""

from dpledger_client.errors import MissingExtra

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra("estimators need: pip install 'dpledger-client[sklearn]'") from error

from dpledger_client.estimators.linear import (
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
)
from dpledger_client.estimators.network import PrivateMLPClassifier
from dpledger_client.estimators.search import PrivateSearchCV

__all__ = [
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateMLPClassifier",
    "PrivateSearchCV",
]
