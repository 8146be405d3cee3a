"""Engine tests that run over HTTP too: some of each kind as a rule, all of them in the long form."""

from __future__ import annotations

from tests.laws.effort import LONG

# The modules of tests/engine that run over HTTP as a rule.
ALWAYS = (
    "app/test_control.py",
    "children/test_children.py",
    "children/test_shared_budgets.py",
    "code/test_approvals.py",
    "code/test_budgets.py",
    "code/test_map_items.py",
    "code/test_sending.py",
    "code/test_waits.py",
    "failures/test_retry.py",
    "plans/test_plan_waiting.py",
)
# Tests of what a worker over HTTP does not do, or what no server can see. By module or test: why.
NEVER = {
    "live/": "they commit rows that no worker writes",
    "test_schedule_verbs.py": "the server encrypts",
    "test_unfirable_schedules.py": "the server encrypts",
    "test_relay.py": "workers over HTTP relay nothing, and the server encrypts",
    "test_effect_buffer.py": "there are no transactions over HTTP",
    "test_unreadable.py": "the server finds values that cannot be read, with words of its own",
    "test_a_broken_chore_does_not_delay_the_others": "the server delivers",
    "test_a_chore_that_hangs_is_restarted_after_a_while": "the server delivers",
    "test_the_worker_that_ends_a_child_notifies_the_parent_or_a_keeper_does": "the server delivers",
    "test_a_parent_of_thousands_of_children_is_executed_only_a_few_times": "the server delivers at once here",
    "test_children_started_in_a_segment_are_created_in_its_one_commit": "each child gets its id by a commit",
    "test_a_start_causes_no_further_execution": "each child gets its id by a commit",
    "test_children_and_continued_runs_have_the_trace_of_their_run": "the server takes real traces only",
    "test_an_argument_that_only_the_store_refuses_fails_the_run_without_crashes": "the server refuses it",
    "test_a_short_outage_of_the_store_does_not_fail_continue_as": "the run is read by its lease",
    "test_a_parent_whose_child_failed_says_what_a_retry_of_either_does": "ids of one instant have no order",
    "test_a_worker_without_a_keeper_relays_to_its_functions_and_one_without_a_relay_to_none": "no relay",
    "test_a_worker_that_lacks_a_handler_says_so_once_and_does_not_claim_the_plan": "no bulk operations",
    "test_a_version_is_left_only_to_a_worker_that_serves_the_same_tenants": "one tenant, or all",
}


def is_selected(node: str) -> bool:
    """Return True when a test of the engine runs over HTTP."""
    if any(one in node for one in NEVER):
        return False
    return LONG or any(one in node for one in ALWAYS)
