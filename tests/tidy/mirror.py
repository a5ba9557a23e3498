"""Which file tests which module: the one that is named after it, or the one that is named here."""

from collections.abc import Iterable
from pathlib import PurePosixPath

__all__ = ["AREAS", "TESTED_IN", "is_named_after", "untested"]

AREAS = {
    "service/dpledger/accounting": "tests/accounting",
    "service/dpledger/ledger": "tests/ledger",
    "service/dpledger/storage": "tests/storage",
    "service/dpledger/api": "tests/api",
    "service/dpledger/queries": "tests/queries",
    "client/dpledger_client": "tests/client",
}
"""Where the modules are, and where their tests."""

_CLIENT, _SERVICE = "client/dpledger_client", "service/dpledger"

_LINES = (
    # The client.
    ("client/thin/test_wire.py", _CLIENT, "_calls aio errors"),
    ("client/test_ledger.py", _CLIENT, "_bulk _models _opening"),
    ("client/thin/test_holds.py", _CLIENT, "_leases"),
    ("client/thin/test_permits.py", _CLIENT, "_settling releases"),
    ("client/thin/test_noise.py", _CLIENT, "_bits _coins _integers"),
    ("client/thin/test_sampling.py", _CLIENT, "samples"),
    ("client/thin/test_objectives.py", _CLIENT, "_arrays"),
    ("client/thin/test_objectives.py", f"{_CLIENT}/objectives", "base linear network regularizers"),
    ("client/test_mechanisms.py", _CLIENT, "_checks"),
    ("client/test_mechanisms.py", f"{_CLIENT}/mechanisms", "additive base declared selection verdicts"),
    ("client/thin/test_trials.py", f"{_CLIENT}/mechanisms", "tuned"),
    ("client/estimators/test_estimators.py", f"{_CLIENT}/estimators", "base linear network prepared"),
    ("client/estimators/test_charging.py", f"{_CLIENT}/objectives", "weighted"),
    ("client/integrations/with_huggingface.py", f"{_CLIENT}/integrations", "huggingface"),
    ("client/integrations/with_lightning.py", f"{_CLIENT}/integrations", "_stopping lightning"),
    ("client/integrations/with_torch.py", f"{_CLIENT}/objectives", "_example_gradients"),
    ("client/integrations/test_opacus.py", f"{_CLIENT}/integrations", "_apart _charges _clipping _poisson"),
    ("client/integrations/with_opacus.py", f"{_CLIENT}/integrations", "_generators _ranks"),
    ("client/integrations/with_flower.py", f"{_CLIENT}/integrations", "flower"),
    ("client/optimizers/test_ranking.py", _CLIENT, "ranking_metrics"),
    ("client/optimizers/test_contract.py", f"{_CLIENT}/optimizers", "training"),
    ("client/optimizers/test_contract.py", f"{_CLIENT}/optimizers/methods", "noisy_gd"),
    (
        "client/optimizers/test_moments.py",
        f"{_CLIENT}/optimizers/methods",
        "adassp approximate_logistic preconditioned_gd",
    ),
    ("client/optimizers/test_contract.py", f"{_CLIENT}/optimizers/support", "base results schedules"),
    ("client/optimizers/test_dp_sgd.py", f"{_CLIENT}/optimizers/methods", "dp_adam proximal_sgd"),
    ("client/optimizers/test_dp_sgd.py", f"{_CLIENT}/optimizers/support", "batches stochastic"),
    ("client/optimizers/test_plans.py", f"{_CLIENT}/optimizers/support", "planning"),
    ("client/optimizers/test_tuning.py", f"{_CLIENT}/optimizers/support", "trial_accounts"),
    (
        "client/optimizers/test_one_call.py",
        f"{_CLIENT}/optimizers/support/rules",
        "adaptive auto distributed facts gradient outputs preconditioned room selections stochastic",
    ),
    ("client/optimizers/test_dp_agd.py", f"{_CLIENT}/optimizers/support", "averaged_gradient"),
    ("client/optimizers/test_line_search.py", f"{_CLIENT}/optimizers/methods", "dp_blgd dp_blsgd"),
    ("client/optimizers/test_admm.py", f"{_CLIENT}/optimizers/methods", "mpadmm ssadmm"),
    ("client/optimizers/test_admm.py", f"{_CLIENT}/optimizers/support", "splitting"),
    ("client/optimizers/test_permuted.py", f"{_CLIENT}/optimizers/methods", "nsgd rsgd_ar"),
    ("client/optimizers/test_permuted.py", f"{_CLIENT}/optimizers/support", "permuted_sgd projections"),
    ("client/optimizers/test_ranking.py", f"{_CLIENT}/optimizers/methods", "priv_br"),
    ("client/optimizers/test_a_ddp.py", f"{_CLIENT}/optimizers/support", "federated participants"),
    (
        "client/optimizers/test_baselines.py",
        f"{_CLIENT}/optimizers/methods",
        "non_private output_perturbation private_majority privgene sgd_advanced sgd_moments",
    ),
    ("client/optimizers/test_baselines.py", f"{_CLIENT}/optimizers/support", "calibrated_sgd"),
    # Accounting.
    ("accounting/test_amplification_approximate.py", f"{_SERVICE}/accounting/amplification", "pairing"),
    ("accounting/test_amplification_poisson.py", f"{_SERVICE}/accounting/amplification", "whole_orders"),
    ("accounting/test_composition.py", f"{_SERVICE}/accounting/composition", "advanced plan registry"),
    ("accounting/test_conversion_registry.py", f"{_SERVICE}/accounting/conversion", "budgets guarantees"),
    ("accounting/test_conversion_registry.py", f"{_SERVICE}/accounting/conversion", "implications rule"),
    ("accounting/test_conversion_pure.py", f"{_SERVICE}/accounting/conversion", "gdp"),
    ("accounting/test_validation.py", f"{_SERVICE}/accounting", "errors"),
    ("api/test_queries.py", f"{_SERVICE}/accounting", "theorem"),
    (
        "accounting/test_mechanisms_above_threshold.py",
        f"{_SERVICE}/accounting/mechanisms",
        "above_threshold_chain above_threshold_terms",
    ),
    (
        "accounting/test_pld_bounds.py",
        f"{_SERVICE}/accounting/pld",
        "catalogue cells discretization distribution moments pairs plan product sampled",
    ),
    ("accounting/test_pld_remainder.py", f"{_SERVICE}/accounting/pld", "concentrated items"),
    # The ledger: through its own tests where it is pure, through storage or the API where it is not.
    ("ledger/test_allocations.py", f"{_SERVICE}/ledger/filters", "shared"),
    ("ledger/test_allocations.py", f"{_SERVICE}/ledger/model", "allocation"),
    ("ledger/test_decide.py", f"{_SERVICE}/ledger/model", "commands"),
    ("ledger/test_quota.py", f"{_SERVICE}/ledger", "quota_rule"),
    ("api/test_quotas.py", f"{_SERVICE}/ledger", "quotas"),
    ("api/test_budget_requests.py", f"{_SERVICE}/ledger", "requests"),
    ("api/test_renewals.py", f"{_SERVICE}/ledger", "renewals"),
    ("api/test_authorizations.py", f"{_SERVICE}/ledger", "charges"),
    ("ledger/test_budget.py", f"{_SERVICE}/ledger/filters", "renyi scalar"),
    ("ledger/test_plan_attacks.py", f"{_SERVICE}/ledger/filters", "plan"),
    ("ledger/test_budget.py", f"{_SERVICE}/ledger/model", "filter"),
    ("ledger/test_retry.py", f"{_SERVICE}/ledger", "errors idempotency"),
    ("api/test_responses.py", f"{_SERVICE}/ledger", "results"),
    ("api/test_served.py", f"{_SERVICE}/ledger", "clock"),
    ("storage/test_repository.py", f"{_SERVICE}/ledger", "ports unit_of_work"),
    ("storage/test_mark_file.py", f"{_SERVICE}/ledger", "marks"),
    ("api/test_authorizations.py", f"{_SERVICE}/ledger", "authorization"),
    ("api/test_authorizations.py", f"{_SERVICE}/ledger/model", "requests"),
    ("api/test_bulk.py", f"{_SERVICE}/ledger", "bulk"),
    ("api/test_guarantee.py", f"{_SERVICE}/ledger", "planning"),
    ("api/test_deployments.py", f"{_SERVICE}/ledger", "deployment"),
    ("api/test_entries.py", f"{_SERVICE}/ledger", "reader"),
    ("api/test_reports.py", f"{_SERVICE}/ledger", "report"),
    ("api/test_previews.py", f"{_SERVICE}/ledger", "preview"),
    ("api/test_datasets.py", f"{_SERVICE}/ledger", "service"),
    # Storage.
    ("storage/test_engines.py", f"{_SERVICE}/storage/engine", "session"),
    ("storage/test_reading.py", f"{_SERVICE}/storage/engine", "search"),
    ("storage/test_migrate.py", f"{_SERVICE}/storage", "tables"),
    ("storage/test_alerts.py", f"{_SERVICE}/storage/read_models", "fractions"),
    ("dashboard/test_overview.py", f"{_SERVICE}/storage/read_models", "dashboard"),
    ("dashboard/test_listing.py", f"{_SERVICE}/storage/read_models", "listing"),
    ("dashboard/test_ranges.py", f"{_SERVICE}/storage/read_models", "spending"),
    ("api/test_reports.py", f"{_SERVICE}/storage/read_models", "report"),
    ("dashboard/test_overview.py", f"{_SERVICE}/storage/repositories", "refusals run_totals runs"),
    (
        "storage/test_repository.py",
        f"{_SERVICE}/storage/repositories",
        "budgets charges datasets entries idempotency partitions reservations surrogate_ids",
    ),
    ("alerts/test_watch.py", f"{_SERVICE}/storage/repositories", "instance"),
    ("deploy/test_rollback.py", f"{_SERVICE}/storage", "rollback"),
    ("cli/test_backups.py", f"{_SERVICE}/storage", "backup"),
    ("dashboard/test_sessions.py", f"{_SERVICE}/storage", "sessions"),
    # The API.
    ("api/test_served.py", f"{_SERVICE}/api", "app services"),
    ("api/test_session.py", f"{_SERVICE}/api", "deps"),
    ("api/test_authorizations.py", f"{_SERVICE}/api", "fast_path"),
    ("api/test_groups.py", f"{_SERVICE}/api/http", "routing"),
    ("api/test_problems.py", f"{_SERVICE}/api/http", "body"),
    ("api/test_entries.py", f"{_SERVICE}/api/http", "pagination"),
    ("api/test_bulk.py", f"{_SERVICE}/api", "lanes"),
    ("api/test_documentation.py", f"{_SERVICE}/api/schemas", "query_responses requests"),
    ("api/test_health.py", f"{_SERVICE}/api", "docs_ui"),
    ("browser/test_docs.py", f"{_SERVICE}/api/routes", "docs"),
    ("api/test_health.py", f"{_SERVICE}/api/routes", "keys"),
    ("deploy/test_rollback.py", f"{_SERVICE}/api/routes", "rollbacks"),
    ("deploy/test_standby.py", f"{_SERVICE}/api", "standby"),
    ("queries/test_outcomes.py", f"{_SERVICE}/api", "query_problems"),
    # Queries.
    ("api/test_queries.py", f"{_SERVICE}/queries", "amplification composition conversion forecast theorems"),
    ("queries/test_calibration.py", f"{_SERVICE}/queries", "evaluation requests"),
    ("queries/test_worker_pool.py", f"{_SERVICE}/queries", "worker"),
)
"""A file of tests, a package, and the package's modules that the file tests without their name."""

TESTED_IN = {
    f"{folder}/{name}.py": f"tests/{test}" for test, folder, names in _LINES for name in names.split()
}
"""For each module that no test is named after, the file that tests it."""


def is_named_after(test: str, module: str) -> bool:
    """Whether ``tests/area/…/test_x.py``, or ``test_package_x.py``, is named after ``…/package/x.py``."""
    path = PurePosixPath(module)
    name = path.stem.lstrip("_")
    area = next(tests for modules, tests in AREAS.items() if module.startswith(f"{modules}/"))
    return test.startswith(f"{area}/") and PurePosixPath(test).name in {
        f"test_{name}.py",
        f"test_{path.parent.name}_{name}.py",
    }


def untested(modules: Iterable[str], tests: Iterable[str]) -> list[str]:
    """The modules that neither a file's name nor the table above gives a test."""
    present = list(tests)
    return [
        module
        for module in modules
        if TESTED_IN.get(module) not in present and not any(is_named_after(test, module) for test in present)
    ]
