"""Planted bugs: small changes of the product, each with the tests that must fail because of it.

The text to replace occurs exactly once in its file; where the product has moved on,
``tests/mutants/test_runner.py`` says which line of this list must follow.
"""

from dataclasses import dataclass

__all__ = ["MUTANTS", "Mutant"]

_SERVICE, _CLIENT = "service/dpledger", "client/dpledger_client"


@dataclass(frozen=True)
class Mutant:
    """One bug: in ``file`` the text ``before`` becomes ``after``; at least one of ``tests`` must fail.

    ``quick`` ones are those that the continuous integration plants each time.
    """

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    quick: bool = False


MUTANTS = (
    # Durability and locks.
    Mutant(
        "answered without a commit",
        f"{_SERVICE}/storage/engine/session.py",
        "                if writing:\n                    session.commit()\n",
        "                if writing and session is None:\n                    session.commit()\n",
        ("tests/storage/test_repository.py::test_entries_follow_on_each_other_over_transactions",),
        quick=True,
    ),
    Mutant(
        "a swallowed error is committed",
        f"{_SERVICE}/storage/engine/session.py",
        "        if not self._raw.in_transaction:\n            raise LostTransaction\n",
        "",
        ("tests/storage/test_failures.py::test_a_transaction_that_sqlite_ended_by_itself_is_not_committed",),
    ),
    Mutant(
        "equal steps of a group are decided on one state of their allocation",
        f"{_SERVICE}/ledger/unit_of_work.py",
        "        command = self._up_to_date(command, self._teams.get(actor))\n",
        "",
        ("tests/api/test_groups.py::test_equal_steps_of_an_allocation_are_decided_one_after_another",),
        quick=True,
    ),
    Mutant(
        "an expiry is refused for and rolled back",
        f"{_SERVICE}/ledger/idempotency.py",
        "                unit.write()\n                return closed\n",
        "                raise closed\n",
        (
            "tests/api/test_reservations.py::test_what_was_said_to_be_expired_stays_so_when_the_clock_goes_back",
        ),
    ),
    Mutant(
        "a backup is put back without marks",
        f"{_SERVICE}/cli/backups.py",
        "    if not path.is_file() and not without_marks:\n",
        "    if not path.is_file() and without_marks is None:\n",
        ("tests/cli/test_backups.py::test_without_marks_nothing_is_put_back_unless_that_is_said",),
    ),
    Mutant(
        "any newer schema is served",
        f"{_SERVICE}/storage/migrate.py",
        "    return oldest is not None and str(oldest) <= known\n",
        "    return oldest is not None\n",
        ("tests/storage/test_migrate.py::test_a_newer_schema_is_served_where_it_says_so",),
    ),
    Mutant(
        "rows are read without their lock",
        f"{_SERVICE}/storage/repositories/datasets.py",
        "return chosen.order_by(datasets.c.name).with_for_update()",
        "return chosen.order_by(datasets.c.name)",
        ("tests/storage/test_concurrency.py::test_a_second_writer_waits_and_then_sees_what_the_first_left",),
    ),
    Mutant(
        "a dataset is written without its lock",
        f"{_SERVICE}/storage/repository.py",
        '        if state is None:\n            raise NotLocked(f"dataset {dataset_id} is not locked',
        '        if dataset_id is None:\n            raise NotLocked(f"dataset {dataset_id} is not locked',
        ("tests/storage/test_repository.py::test_nothing_is_written_to_a_dataset_that_is_not_locked",),
    ),
    Mutant(
        "a ledger that moved on is overwritten",
        f"{_SERVICE}/storage/repositories/datasets.py",
        "    if moved != 1:  # somebody wrote without the lock",
        "    if moved > 1:  # somebody wrote without the lock",
        ("tests/storage/test_repository.py::test_a_book_that_moved_on_without_the_lock_is_noticed",),
    ),
    Mutant(
        "a row that another process wrote is taken from memory",
        f"{_SERVICE}/storage/repositories/datasets.py",
        "if stored is not None and stored.row == row else",
        "if stored is not None else",
        ("tests/storage/test_repository.py::test_a_row_that_somebody_else_touched_is_read_anew",),
        quick=True,
    ),
    Mutant(
        "an unknown outcome is run again",
        f"{_SERVICE}/ledger/idempotency.py",
        "if attempt >= attempts or not storage.is_transient(error):",
        "if attempt >= attempts:",
        ("tests/ledger/test_retry.py::test_anything_else_is_not_run_again",),
        quick=True,
    ),
    Mutant(
        "two workers decide one dataset",
        f"{_SERVICE}/ledger/batching.py",
        "                        queue.busy = True\n",
        "",
        ("tests/ledger/test_batching.py::test_a_dataset_that_is_being_decided_is_left_to_its_worker",),
    ),
    # Exactly once.
    Mutant(
        "a refusal does not stick to its key",
        f"{_SERVICE}/ledger/authorization.py",
        "        if batch.refusals:\n",
        "        if batch.refusals is None:\n",
        ("tests/api/test_session.py::test_open_authorize_exhaust_replay_reserve_settle_verify",),
        quick=True,
    ),
    Mutant(
        "a key's body is not compared with its entry's",
        f"{_SERVICE}/ledger/authorization.py",
        "        if stored.request != call.request:\n            raise KeyReused\n"
        "        return stored_grant",
        "        return stored_grant",
        ("tests/api/test_authorizations.py::test_another_request_under_the_same_key_is_refused",),
        quick=True,
    ),
    Mutant(
        "a key's body is not compared with its answer's",
        f"{_SERVICE}/ledger/idempotency.py",
        "    if stored.request != call.request:\n        raise KeyReused\n",
        "",
        ("tests/api/test_bulk.py::test_a_key_is_not_used_for_two_lists",),
    ),
    Mutant(
        "a revoked token decides",
        f"{_SERVICE}/ledger/authorization.py",
        "            if call.actor in self._ended:\n                raise TokenEnded\n",
        "",
        ("tests/api/test_tokens.py::test_a_revoked_token_decides_nothing_from_that_moment_on",),
    ),
    # What is decided.
    Mutant(
        "an expiry refunds",
        f"{_SERVICE}/ledger/decide.py",
        "    used = command.used if isinstance(command, Settle) else held.times\n",
        "    used = command.used if isinstance(command, Settle) else 0\n",
        ("tests/api/test_reservations.py::test_an_expired_reservation_is_charged_in_full",),
        quick=True,
    ),
    Mutant(
        "what is due is not charged before a decision",
        f"{_SERVICE}/ledger/unit_of_work.py",
        "        if state.whole.open_reservations or state.partitions:\n",
        "        if state.whole.open_reservations < 0:\n",
        ("tests/api/test_reservations.py::test_what_is_due_is_charged_before_anything_else_is_decided",),
    ),
    Mutant(
        "what is reserved can be spent elsewhere",
        f"{_SERVICE}/ledger/model/state.py",
        "        return self.exact_spent.plus(self.exact_reserved)\n",
        "        return self.exact_spent\n",
        ("tests/api/test_reservations.py::test_what_is_held_cannot_be_spent_elsewhere",),
    ),
    Mutant(
        "a reservation counts once",
        f"{_SERVICE}/ledger/model/state.py",
        "        held = self.exact_reserved.plus(each, times)\n",
        "        held = self.exact_reserved.plus(each)\n",
        ("tests/ledger/test_exactness.py::test_reservations_hold_settle_and_expire_exactly",),
        quick=True,
    ),
    Mutant(
        "more is settled than was held",
        f"{_SERVICE}/ledger/service.py",
        '            check_count("used", used, most=held.times, least=0)\n',
        "",
        ("tests/api/test_reservations.py::test_no_more_and_no_less_than_was_held_is_settled",),
    ),
    Mutant(
        "a stranger settles",
        f"{_SERVICE}/ledger/service.py",
        "            _check_settler(held, settlement, call.actor)\n",
        "",
        ("tests/api/test_reservations.py::test_another_token_of_the_dataset_cannot_settle",),
        quick=True,
    ),
    Mutant(
        "an admin gives back without a statement",
        f"{_SERVICE}/ledger/service.py",
        "    if settlement.used < held.times and settlement.statement is None:\n",
        "    if settlement.used > held.times and settlement.statement is None:\n",
        (
            "tests/api/test_reservations.py"
            "::test_an_admin_settles_for_another_token_in_full_or_with_a_statement",
        ),
    ),
    Mutant(
        "one partition counts under a private key",
        f"{_SERVICE}/ledger/model/state.py",
        "        others = [self.extremes.first, self.extremes.second]\n",
        "        others = [self.extremes.first]\n",
        ("tests/ledger/test_decide.py::test_the_whole_has_what_the_largest_partitions_leave",),
    ),
    Mutant(
        "a partition does not see the largest other one",
        f"{_SERVICE}/ledger/model/state.py",
        "            others = [self.extremes.largest_other(partition.number)]\n",
        "            others = []\n",
        ("tests/ledger/test_decide.py::test_under_a_private_key_the_two_largest_partitions_add_up",),
        quick=True,
    ),
    Mutant(
        "the second largest partition is forgotten",
        f"{_SERVICE}/ledger/model/state.py",
        "np.where(overtakes, self.first, np.maximum(self.second, committed))",
        "np.where(overtakes, self.second, np.maximum(self.second, committed))",
        ("tests/ledger/test_decide.py::test_the_whole_has_what_the_largest_partitions_leave",),
    ),
    Mutant(
        "the whole does not see its partitions",
        f"{_SERVICE}/ledger/model/state.py",
        "                self._recovered(self.extremes.headroom)\n",
        "                self._recovered(self.extremes.least_limit)\n",
        ("tests/ledger/test_decide.py::test_the_whole_has_what_the_largest_partitions_leave",),
    ),
    Mutant(
        "without replacement in a partition by a private key",
        f"{_SERVICE}/ledger/charges.py",
        'if partition is None or state.partition_key == "fixed" or not step.needs_equal_sizes:',
        'if partition is None or state.partition_key != "" or not step.needs_equal_sizes:',
        ("tests/api/test_partition_sizes.py::test_every_way_to_spend_refuses_it",),
        quick=True,
    ),
    Mutant(
        "a second look is charged as a fresh sample",
        f"{_SERVICE}/ledger/charges.py",
        "        sample = spend.sample if spend.seen_sample is None else Sample()\n",
        "        sample = spend.sample\n",
        ("tests/api/test_authorizations.py::test_a_sample_looked_at_again_is_charged_raw",),
    ),
    Mutant(
        "an additive delta is not held to its limit",
        f"{_SERVICE}/ledger/model/budget.py",
        "        return delta and (any(main) if self.filter.one_suffices else all(main))\n",
        "        return any(main) if self.filter.one_suffices else all(main)\n",
        ("tests/ledger/test_exactness.py::test_additive_deltas_that_add_up_to_the_limit_are_granted",),
    ),
    # Quotas.
    Mutant(
        "a quota does not decide",
        f"{_SERVICE}/ledger/decide.py",
        "        if exceeded is not None:\n",
        "        if exceeded is not None and exceeded.removed:\n",
        ("tests/ledger/test_quota.py::test_the_budget_decides_first_and_then_the_quota",),
        quick=True,
    ),
    Mutant(
        "a slice leaves its window when its first moment does",
        f"{_SERVICE}/ledger/model/quota.py",
        "        return (index + 1) * self._slice_us + self.window_seconds * 1_000_000\n",
        "        return index * self._slice_us + self.window_seconds * 1_000_000\n",
        ("tests/ledger/test_quota.py::test_a_refusal_says_what_fits_and_when_more_is_free",),
    ),
    Mutant(
        "what is held does not count for a quota",
        f"{_SERVICE}/ledger/model/quota.py",
        "        total = self.held\n",
        "        total = self.held.times(0)\n",
        ("tests/ledger/test_quota.py::test_what_is_held_counts_however_long_ago_it_was_reserved",),
    ),
    Mutant(
        "a settlement gives nothing back to the quota",
        f"{_SERVICE}/ledger/unit_of_work.py",
        "            held = replace(held, quotas=self.quotas(held.team))\n",
        "            held = replace(held, quotas=())\n",
        ("tests/api/test_quotas.py::test_what_is_reserved_counts_as_used_and_settlement_gives_it_back",),
    ),
    Mutant(
        "requests of a group are granted in a row past a quota",
        f"{_SERVICE}/ledger/unit_of_work.py",
        "        if is_plain(ledger) and not self.state.has_quotas:\n",
        "        if is_plain(ledger):\n",
        ("tests/api/test_groups.py::test_equal_steps_of_a_group_stop_at_the_quota",),
    ),
    Mutant(
        "a repeat within one group is decided again",
        f"{_SERVICE}/ledger/authorization.py",
        "        return len(keys) == len(calls) and keys.isdisjoint(self._served)\n",
        "        return len(keys) == len(calls)\n",
        ("tests/storage/test_group_walks.py::test_a_group_decides_what_one_after_another_would",),
    ),
    Mutant(
        "an allocation comes back after a release",
        f"{_SERVICE}/ledger/model/allocation.py",
        "        return not (self.returned or self.releases or self.totals.open_reservations)\n",
        "        return not (self.returned or self.totals.open_reservations)\n",
        ("tests/ledger/test_allocations.py::test_what_may_have_been_released_is_never_given_back",),
        quick=True,
    ),
    Mutant(
        "a stranger returns an allocation",
        f"{_SERVICE}/ledger/allocations.py",
        "        if not (by_admin or found.owner == call.actor):\n",
        "        if not (by_admin or found.owner):\n",
        ("tests/api/test_allocations.py::test_only_the_owner_or_an_admin_returns_it",),
    ),
    Mutant(
        "an allocation is spent from after its return",
        f"{_SERVICE}/ledger/unit_of_work.py",
        "        if allocation.returned:\n            raise AllocationReturned(name)\n",
        "",
        ("tests/api/test_allocations.py::test_what_was_never_used_can_be_returned",),
    ),
    # Plans.
    Mutant(
        "an item is exchanged for another",
        f"{_SERVICE}/ledger/filters/plan.py",
        "    if not (item.caps(cost) if item.step is None else dominates(item.step, step)):\n",
        "    if item.step is None and not item.caps(cost):\n",
        ("tests/api/test_plans.py",),
    ),
    Mutant(
        "a count of a plan is raised",
        f"{_SERVICE}/ledger/filters/plan.py",
        "                if limits[at] > budget.limits[at]:\n",
        "                if limits[at] < 0.0:\n",
        ("tests/api/test_plans.py",),
    ),
    Mutant(
        "domination ignores the rate",
        f"{_SERVICE}/accounting/pld/domination.py",
        "    return first[0] is second[0] and second[1] <= first[1]\n",
        "    return first[0] is second[0]\n",
        ("tests/accounting/test_pld_domination.py::test_what_no_rule_covers_is_not_dominated",),
        quick=True,
    ),
    Mutant(
        "domination ignores the count",
        f"{_SERVICE}/accounting/pld/domination.py",
        "    return release.count <= item.count and item.mechanism.dominates",
        "    return item.mechanism.dominates",
        ("tests/accounting/test_pld_domination.py::test_what_no_rule_covers_is_not_dominated",),
    ),
    Mutant(
        "the wrong direction of a privacy-loss distribution",
        f"{_SERVICE}/accounting/pld/plan.py",
        "            for items in ([remove] if remove == add else [remove, add])\n",
        "            for items in [add]\n",
        ("tests/accounting/test_pld_bounds.py::test_the_directions_differ_and_the_larger_counts",),
    ),
    Mutant(
        "a step's own delta counts as one half at most",
        f"{_SERVICE}/accounting/pld/discretization.py",
        "times * math.log1p(-part.infinite) for",
        "times * math.log1p(-min(part.infinite, 0.5)) for",
        (
            "tests/accounting/test_pld_bounds.py"
            "::test_a_step_that_mostly_shows_everything_is_charged_for_all_of_it",
        ),
    ),
    # Bounds.
    Mutant(
        "the atom of sampled Laplace noise is left out",
        f"{_SERVICE}/accounting/amplification/sampled_laplace.py",
        "    weights[-1] = 0.5 * math.exp(-shift) * (1.0 + share)\n",
        "    weights[-1] = 0.5 * math.exp(-shift) * share\n",
        (
            "tests/accounting/test_amplification_sampled_laplace.py"
            "::test_poisson_is_the_divergence_of_the_mixture_in_its_worse_direction",
        ),
    ),
    Mutant(
        "samples are amplified each alone",
        f"{_SERVICE}/accounting/stepcost.py",
        "        (release.mechanism.gaussian_mu, release.count)\n",
        "        (release.mechanism.gaussian_mu, 1)\n",
        ("tests/accounting/test_stepcost.py::test_a_count_is_that_many_releases",),
        quick=True,
    ),
    Mutant(
        "a count is ignored for other mechanisms",
        f"{_SERVICE}/accounting/stepcost.py",
        "release.mechanism.cost(orders, step.adjacency).repeated(release.count) for",
        "release.mechanism.cost(orders, step.adjacency) for",
        ("tests/accounting/test_stepcost.py::test_a_count_is_that_many_releases",),
    ),
    Mutant(
        "a wrong adjacency passes",
        f"{_SERVICE}/accounting/amplification/pairing.py",
        "        if adjacency is not needed:\n",
        "        if adjacency is None:\n",
        ("tests/accounting/test_stepcost.py::test_the_other_adjacency_is_refused_by_name",),
        quick=True,
    ),
    Mutant(
        "NaN passes",
        f"{_SERVICE}/accounting/validation.py",
        "    if not math.isfinite(number):\n",
        "    if math.isinf(number):\n",
        ("tests/accounting/test_validation.py::test_what_is_no_finite_number_is_refused",),
        quick=True,
    ),
    Mutant(
        "a multiple is not rounded",
        f"{_SERVICE}/accounting/rounding.py",
        "    return product if product == 0.0 else math.nextafter(product, direction.value)\n",
        "    return product\n",
        ("tests/accounting/test_rounding.py::test_a_multiple_lies_on_its_side_and_next_to_the_exact_one",),
    ),
    Mutant(
        "a cost is rounded down",
        f"{_SERVICE}/accounting/rounding.py",
        "    sign = 1.0 if direction is Direction.UP else -1.0\n",
        "    sign = -1.0\n",
        ("tests/accounting/test_rounding.py::test_widening_moves_by_at_least_the_stated_units",),
        quick=True,
    ),
    Mutant(
        "an exact sum is rounded down",
        f"{_SERVICE}/accounting/exact.py",
        "    return -(-numerator // denominator)\n",
        "    return numerator // denominator\n",
        ("tests/accounting/test_exact.py::test_denominators_stay_bounded_and_what_is_added_is_rounded_up",),
    ),
    Mutant(
        "weights are dropped",
        f"{_SERVICE}/accounting/filters.py",
        "    return renyi_budget(orders, epsilon, np.log(weights) + math.log(delta))\n",
        "    return renyi_budget(orders, epsilon, 0.0 * np.log(weights) + math.log(delta))\n",
        ("tests/accounting/test_filters.py::test_the_weighted_rule_withstands_the_same_strategies",),
        quick=True,
    ),
    Mutant(
        "Laplace noise is charged as Gumbel noise",
        f"{_SERVICE}/accounting/mechanisms/selection.py",
        'if self.noise == "gumbel" else pure_cost(epsilon, orders)',
        'if self.noise != "exponential" else pure_cost(epsilon, orders)',
        (
            "tests/accounting/test_mechanisms_selection.py"
            "::test_an_eighth_of_the_square_is_below_the_truth_for_laplace_noise",
            "tests/accounting/test_mechanisms_selection.py::test_no_monotonic_selection_exceeds_its_cost",
        ),
    ),
    Mutant(
        "scores that move both ways cost as if they moved one way",
        f"{_SERVICE}/accounting/mechanisms/selection.py",
        "        return ratio if self.monotonic else 2.0 * ratio\n",
        "        return ratio\n",
        (
            "tests/accounting/test_mechanisms_selection.py"
            "::test_scores_that_may_move_both_ways_cost_as_twice_the_ratio",
        ),
    ),
    # History.
    Mutant(
        "the chain's hash omits a field",
        f"{_SERVICE}/ledger/model/entries.py",
        "        if self.used is not None:\n            parts.append(f'\"used\":{self.used}')\n",
        "",
        ("tests/ledger/test_entries.py::test_every_field_is_covered_by_the_hash",),
        quick=True,
    ),
    Mutant(
        "the chain's hash omits the hash before",
        f"{_SERVICE}/ledger/model/entries.py",
        "hashlib.sha256(self.previous + self.canonical.encode())",
        "hashlib.sha256(self.canonical.encode())",
        ("tests/ledger/test_entries.py::test_the_hash_is_that_of_the_sorted_json_of_what_is_set",),
    ),
    Mutant(
        "a charge's amounts are not covered",
        f"{_SERVICE}/ledger/model/entries.py",
        '        digest.update(self.amounts.astype("<f8").tobytes())\n',
        "",
        ("tests/ledger/test_entries.py::test_a_charge_is_known_by_its_description_purpose_and_amounts",),
    ),
    Mutant(
        "a receipt is not signed over the sequence",
        f"{_SERVICE}/ledger/receipts.py",
        '"run":{quoted(entry.run or "")},"sequence":{entry.sequence},',
        '"run":{quoted(entry.run or "")},',
        ("tests/api/test_session.py::test_open_authorize_exhaust_replay_reserve_settle_verify",),
    ),
    Mutant(
        "a receipt's signature is not checked",
        f"{_SERVICE}/ledger/receipts.py",
        '        public.verify(header_part + b"." + payload_part, _decode(signature_part))\n',
        "",
        ("tests/ledger/test_receipts.py::test_an_altered_receipt_is_refused",),
    ),
    Mutant(
        "a rollback goes unnoticed",
        f"{_SERVICE}/storage/repository.py",
        "            if behind:\n                self._guard.check(self._session, behind)\n",
        "",
        ("tests/deploy/test_rollback.py::test_a_copy_put_back_under_a_running_service_is_refused",),
    ),
    Mutant(
        "a replay grants more than the budget had",
        f"{_SERVICE}/ledger/replay.py",
        "if isinstance(command, (Authorize, Reserve, Allocate)) and not would_fit(self.state, command):",
        "if isinstance(command, Allocate) and not would_fit(self.state, command):",
        ("tests/ledger/test_replay.py::test_a_forged_chain_cannot_grant_more_than_the_budget",),
    ),
    # Tokens.
    Mutant(
        "a token is compared by its beginning",
        f"{_SERVICE}/auth/tokens.py",
        '        inner.update(b"token\\0" + token.text.encode())\n',
        '        inner.update(b"token\\0" + token.text[:40].encode())\n',
        ("tests/api/test_tokens.py::test_one_wrong_letter_is_enough",),
    ),
    Mutant(
        "a secret is not compared where memory knows the id",
        f"{_SERVICE}/auth/gatekeeper.py",
        "        if not hmac.compare_digest(row.keyed_hash, self._hasher.hash(token)):\n",
        "        if max_age_seconds < 0.0:\n",
        ("tests/auth/test_gatekeeper.py::test_memory_does_not_replace_the_secret",),
    ),
    Mutant(
        "a scope is not checked",
        f"{_SERVICE}/auth/gatekeeper.py",
        "        if scope not in self.scopes:\n",
        "        if not self.scopes:\n",
        ("tests/api/test_tokens.py::test_each_scope_includes_the_ones_below_it",),
        quick=True,
    ),
    Mutant(
        "a token reaches other datasets",
        f"{_SERVICE}/auth/gatekeeper.py",
        "        if self.datasets is not None and name not in self.datasets:\n",
        "        if self.datasets is not None and not name:\n",
        ("tests/api/test_tokens.py::test_a_list_of_datasets_limits_everything",),
    ),
    Mutant(
        "a token for another audience is taken",
        f"{_SERVICE}/auth/web_tokens.py",
        "    if audience not in audiences:\n",
        "    if not audiences:\n",
        ("tests/auth/test_web_tokens.py::test_wrong_claims_are_refused",),
        quick=True,
    ),
    Mutant(
        "an issuer's key is believed for ever while it fails",
        f"{_SERVICE}/auth/provider.py",
        "        if known is None or self._elapsed() - known.read_at > LONGEST_SECONDS:\n",
        "        if known is None:\n",
        ("tests/auth/test_provider.py::test_keys_are_believed_for_a_bounded_time_while_the_issuer_fails",),
    ),
    Mutant(
        "a login's state is good twice",
        f"{_SERVICE}/auth/sign_on.py",
        "        if not self._ended.end(number, ends_us, self._clock.now_us()):\n",
        "        if self._ended.end(number, ends_us, self._clock.now_us()) is None:\n",
        ("tests/dashboard/test_sign_on.py::test_a_state_is_good_once",),
    ),
    Mutant(
        "an identity of another login is taken",
        f"{_SERVICE}/auth/sign_on.py",
        "not hmac.compare_digest(nonce.encode(), expected.encode())",
        "not expected",
        ("tests/dashboard/test_sign_on.py::test_an_identity_that_is_not_of_this_login_is_refused",),
    ),
    Mutant(
        "a group's scope reaches another group's datasets",
        f"{_SERVICE}/auth/federation.py",
        "            lists = [grant.datasets for grant in matched if grant.scope is scope]\n",
        "            lists = [grant.datasets for grant in matched]\n",
        ("tests/auth/test_federation.py::test_two_values_together_never_grant_what_neither_does",),
    ),
    Mutant(
        "a group's name with spaces counts as several groups",
        f"{_SERVICE}/auth/federation.py",
        "        claim = claim.split() if is_spaced else [claim]\n",
        "        claim = claim.split()\n",
        (
            "tests/auth/test_federation.py"
            "::test_a_text_with_spaces_is_one_value_where_it_is_no_list_of_scopes",
        ),
    ),
    # The client.
    Mutant(
        "the data are looked at before the yes",
        f"{_CLIENT}/optimizers/training.py",
        "        drawn = sample or Full()\n        return self._look(",
        "        drawn = sample or Full()\n        self.source.X[0]\n        return self._look(",
        ("tests/client/optimizers/test_contract.py::test_each_look_at_the_data_follows_its_entry",),
    ),
    Mutant(
        "a permit is used more often than granted",
        f"{_CLIENT}/permits.py",
        "            if use >= self.releases[number].count:\n",
        "            if use > self.releases[number].count:\n",
        ("tests/client/thin/test_permits.py::test_each_release_of_a_step_is_used_up_by_itself",),
        quick=True,
    ),
    Mutant(
        "one yes gives two permits",
        f"{_CLIENT}/permits.py",
        "        if key in _CLAIMED and (journal is None or _CLAIMED[key] != journal):\n",
        "        if key in _CLAIMED and journal is not None and _CLAIMED[key] != journal:\n",
        ("tests/client/thin/test_permits.py::test_the_key_of_a_yes_gives_no_second_permit",),
    ),
    Mutant(
        "a sample's secret size is divided by",
        f"{_CLIENT}/optimizers/support/stochastic.py",
        "            lambda batch: objective.clipped_gradient_sum(w, batch.X, batch.y, clip),\n",
        "            lambda batch: objective.clipped_gradient_sum(w, batch.X, batch.y, clip)\n"
        "            * (self.size / max(len(batch.X), 1)),\n",
        ("tests/client/optimizers/test_contract.py::test_without_noise_it_is_its_textbook_form",),
    ),
    Mutant(
        "replace-one is charged at one clip",
        f"{_CLIENT}/objectives/base.py",
        '{"add-remove": 1.0, "replace-one": 2.0}[check_choice(',
        '{"add-remove": 1.0, "replace-one": 1.0}[check_choice(',
        (
            "tests/client/optimizers/test_dp_sgd.py::test_neighbours_never_move_the_gradient_further_than_declared",
        ),
    ),
    Mutant(
        "coins come up too often",
        f"{_CLIENT}/sampling.py",
        "< np.uint64(later)",
        ">= np.uint64(0)",
        ("tests/client/thin/test_sampling.py::test_a_coin_comes_up_below_the_rate_and_not_at_it",),
        quick=True,
    ),
    Mutant(
        "a closed reservation is used on",
        f"{_CLIENT}/permits.py",
        "        if self._closed or used >= self._present_limit():\n",
        "        if used >= self._present_limit():\n",
        ("tests/client/thin/test_permits.py::test_after_its_end_a_reservation_gives_nothing",),
    ),
    # Private tuning.
    Mutant(
        "a tuning costs what its cheapest candidate does",
        f"{_SERVICE}/accounting/mechanisms/tuned.py",
        "curve = np.maximum(first.epsilons, second.epsilons)",
        "curve = np.minimum(first.epsilons, second.epsilons)",
        (
            "tests/accounting/test_mechanisms_tuned.py::test_it_costs_the_tuning_of_its_dearest_candidate_at_each_order",
        ),
    ),
    Mutant(
        "the number of trials is not random",
        f"{_CLIENT}/mechanisms/tuned.py",
        "range(self.trials.draw(noise.bits))",
        "range(3)",
        ("tests/client/thin/test_trials.py::test_the_best_of_so_many_trials_is_released",),
    ),
    Mutant(
        "a trial takes more steps than it was described with",
        f"{_CLIENT}/optimizers/support/trial_accounts.py",
        "if self._unused[wanted] < times:",
        "if self._unused[wanted] < 0:",
        (
            "tests/client/optimizers/test_tuning.py::test_a_trial_is_granted_its_own_steps_as_often_as_described",
        ),
    ),
    # Moments.
    Mutant(
        "lost squares hide a row from clipping in preconditioned columns",
        f"{_CLIENT}/optimizers/methods/preconditioned_gd.py",
        "np.sqrt(np.vecdot(z, z) + LOST_SQUARES)",
        "np.sqrt(np.vecdot(z, z) + 0.0 * LOST_SQUARES)",
        ("tests/client/optimizers/test_moments.py::test_gradients_in_scaled_columns_are_clipped_there",),
    ),
    Mutant(
        "a request for budget is approved twice",
        f"{_SERVICE}/ledger/requests.py",
        "    if request.state is not RequestState.OPEN:\n",
        "    if request.state in (RequestState.REJECTED, RequestState.WITHDRAWN):\n",
        (
            "tests/api/test_budget_requests.py::test_a_request_is_decided_once",
            "tests/reliability/test_request_races.py"
            "::test_two_admins_who_approve_one_request_carry_it_out_once",
        ),
        quick=True,
    ),
    Mutant(
        "a spend token approves a request for budget",
        f"{_SERVICE}/api/routes/budget_requests.py",
        "@require_scope(\n    Scope.ADMIN,\n",
        "@require_scope(\n    Scope.SPEND,\n",
        (
            "tests/api/test_budget_requests.py::test_only_an_admin_decides_and_only_the_requester_withdraws",
            "tests/api/test_scopes.py::test_a_token_opens_what_its_scope_includes",
        ),
        quick=True,
    ),
    Mutant(
        "an approval carries out more than was asked and replays",
        f"{_SERVICE}/ledger/model/budget_request.py",
        "    return same_moment and asked == (entry.kind, entry.detail)\n",
        "    return same_moment and asked[0] is entry.kind\n",
        (
            "tests/ledger/test_budget_request.py"
            "::test_an_approval_whose_effect_is_not_what_was_asked_breaks_the_ledger",
        ),
    ),
    Mutant(
        "an approval lowers a budget that was raised meanwhile",
        f"{_SERVICE}/ledger/requests.py",
        "    if unit.budget_changed_since(request.sequence):\n",
        "    if unit.budget_changed_since(unit.state.sequence):\n",
        ("tests/api/test_budget_requests.py::test_a_request_is_outdated_once_what_it_changes_has_changed",),
    ),
    Mutant(
        "a request that does not fit is closed by its approval",
        f"{_SERVICE}/ledger/unit_of_work.py",
        "            if isinstance(refused, Refused):\n                return refused\n",
        "            if isinstance(refused, Refused):\n"
        "                self.decide_request(request, RequestState.APPROVED, reason, actor)\n"
        "                return refused\n",
        ("tests/api/test_budget_requests.py::test_an_approval_that_does_not_fit_leaves_the_request_open",),
    ),
    Mutant(
        "a budget of units that recur over epochs is renewed",
        f"{_SERVICE}/ledger/renewals.py",
        "    if not units_lie_in_one_partition(transaction.entry(state.dataset_id, 1).entry):\n",
        "    if transaction.entry(state.dataset_id, 1).entry.detail is None:\n",
        ("tests/api/test_renewals.py::test_what_would_not_be_sound_is_refused_with_the_reason",),
        quick=True,
    ),
    Mutant(
        "any epoch may be opened",
        f"{_SERVICE}/ledger/renewals.py",
        "        if asked.epoch not in openable:\n",
        "        if not asked.epoch:\n",
        ("tests/api/test_renewals.py::test_no_past_far_or_present_epoch_is_opened_again",),
    ),
    Mutant(
        "a replaced record moves sufficient statistics no more than an added one",
        f"{_CLIENT}/optimizers/support/moments.py",
        'square = 2.0 if adjacency == "add-remove" else 6.0',
        'square = 2.0 if adjacency == "add-remove" else 2.0',
        ("tests/client/optimizers/test_moments.py::test_no_record_moves_a_sum_by_more_than_its_sensitivity",),
    ),
    # Distributed training.
    Mutant(
        "an update turned around is charged as one that went away",
        f"{_CLIENT}/optimizers/methods/dp_fedavg.py",
        "        sensitivity = 2.0 * self.clip\n",
        "        sensitivity = self.clip\n",
        (
            "tests/client/optimizers/test_dp_fedavg.py"
            "::test_all_of_a_participants_data_move_its_release_by_no_more_than_declared",
        ),
    ),
    Mutant(
        "a participant answers other parameters with an old release",
        f"{_CLIENT}/integrations/participant.py",
        'json.dumps(asked).encode() + b"\\n" + np.ascontiguousarray(w).tobytes()',
        "json.dumps(asked).encode()",
        (
            "tests/client/integrations/test_participant.py"
            "::test_other_parameters_another_round_and_another_run_are_paid_for",
        ),
    ),
    Mutant(
        "a participant that comes back draws fresh noise for an old charge",
        f"{_CLIENT}/integrations/participant.py",
        "replace(account, journal=journal).authorize(release, sample=sample)",
        "account.authorize(release, sample=sample, key=path.stem)",
        (
            "tests/client/integrations/test_participant.py"
            "::test_a_request_that_comes_again_is_answered_as_before",
        ),
    ),
    Mutant(
        "threads of a participant answer one request twice",
        f"{_CLIENT}/journal.py",
        "        with self._lock:\n            try:\n                yield self\n",
        "        if True:\n            try:\n                yield self\n",
        (
            "tests/client/integrations/test_participant.py"
            "::test_a_request_that_comes_twice_at_once_is_answered_once_and_charged_once",
        ),
    ),
    # Trainings by Opacus.
    Mutant(
        "a forked process draws its parent's noise again",
        f"{_CLIENT}/integrations/opacus.py",
        "        if self.forked:",
        "        if False:",
        (
            "tests/client/integrations/test_opacus.py"
            "::test_an_accountant_is_neither_copied_nor_used_in_a_forked_process",
        ),
        quick=True,
    ),
    Mutant(
        "a frozen batch normalisation trains on its batch",
        f"{_CLIENT}/integrations/_apart.py",
        '_MIXING = "BatchNorm"',
        '_MIXING = "NoLayer"',
        (
            "tests/client/integrations/test_opacus.py"
            "::test_a_layer_that_mixes_records_or_keeps_of_them_is_refused",
        ),
        quick=True,
    ),
    Mutant(
        "several clipped gradients of one record are added up",
        f"{_CLIENT}/integrations/_clipping.py",
        "drawn is not None and self.rows > drawn",
        "drawn is None and self.rows > 0",
        ("tests/client/integrations/test_opacus.py::test_more_gradients_than_records_are_refused",),
    ),
    Mutant(
        "a gradient that is not finite is added up",
        f"{_CLIENT}/integrations/_clipping.py",
        "            _drop_unusable(batch)\n",
        "",
        ("tests/client/integrations/test_opacus.py::test_a_gradient_that_is_not_finite_is_not_added_up",),
    ),
    Mutant(
        "noise of single precision on doubles",
        f"{_CLIENT}/integrations/_clipping.py",
        "_SECURE if getattr",
        "_PRECISE if getattr",
        ("tests/client/integrations/test_opacus.py::test_in_secure_mode_doubles_are_refused",),
    ),
    Mutant(
        "a restarted job plans by what is left now",
        f"{_CLIENT}/journal.py",
        "            if place not in self._answers:",
        "            if True:",
        ("tests/client/thin/test_journal.py::test_what_was_left_before_a_request_is_known_after_a_restart",),
    ),
)
