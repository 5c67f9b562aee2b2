"""The guards of the model: what each is called, and the invariant that breaks without it."""

from __future__ import annotations

GUARDS = {
    # what is dropped: the invariant that a search then finds broken
    "enqueue_if_absent": "I7",
    "enqueue_missing": "I8",
    "claim_counts": "I5",
    "lease_fence": "I3",
    "reclaim_deadline": "I2",
    "reclaim_budget": "I5",
    "reclaim_landing": "I8",
    "complete_owner": "I3",
    "complete_token": "I4",
    "complete_landing_deadline": "I3",
    "landing_fence": "I3",
    "end_fence": "I3",
    "restore_fence": "I3",
    "abort_owner": "I3",
    "abort_from_leased": "I3",
    "drain_refunds_bound": "I5",
    "exhaust_deadline": "I2",
    "exhaust_budget": "I5",
    "exhaust_fence": "I3",
    "exhaust_landing": "I8",
    "exhaust_clears_owner": "I3",
    "rejudge_fence": "I4",
    "rejudge_new_id": "I4",
    "result_fence": "I4",
    "mark_fence": "I4",
    "mark_if_older": "I1",
    "mark_own_fence": "I6",
    "je_keeps_result": "I6",
    "je_minds_mark": "I1",
    "counters_before_end": "I1",
    "cancel_fence": "I3",
    "cancel_clears_owner": "I3",
    "cancel_after_a_result": "I1",
    "cancel_is_swept": "I8",
    "cancel_brings_back_under_its_fence": "I1",
    "cancel_recounts": "I1",
    # Who acts on one document because of another reads that other as a majority has it.
    "marks_read_by_majority": "I4",
    "restores_read_by_majority": "I4",
    "bring_back_read_by_majority": "I1",
    "missing_read_by_majority": "I4",
    "rejudge_read_by_majority": "I4",
    "cancel_read_by_majority": "I1",
    "retention_read_by_majority": "I4",
    "retention_removes_what_it_read": "I3",
    "recompute_read_by_majority": "I1",
    "recompute_reads_its_own_write": "I1",
    "refusal_read_by_majority": "I1",
    "answers_confirmed": "I3",
    "blobs_read_by_majority": "I6",
    # What nobody's steps lead to is judged afresh.
    "repair_stranded": "I8",
    "repair_read_by_majority": "I4",
    "repair_reads_in_order": "I4",
    "repair_fence": "I4",
    "repair_above_both": "I4",
    "repair_is_marked": "I8",
    "repair_leaves_what_has_no_submission": "I8",
    "removal_waits_for_landings": "I4",
}
CANCELS = frozenset(guard for guard in GUARDS if guard.startswith("cancel_"))
"""Guards that a search misses only where a rejudge may be taken back."""

READERS = {
    "marks": ("marks_read_by_majority",),
    "restores": ("restores_read_by_majority", "bring_back_read_by_majority"),
    "missing": ("missing_read_by_majority", "rejudge_read_by_majority"),
    "cancels": ("cancel_read_by_majority",),
    "retention": ("retention_read_by_majority", "retention_removes_what_it_read"),
    "recomputes": ("recompute_read_by_majority", "recompute_reads_its_own_write"),
    "judge errors": ("refusal_read_by_majority",),
    "answers": ("answers_confirmed",),
    "blobs": ("blobs_read_by_majority",),
    "repairs": ("repair_read_by_majority", "repair_reads_in_order", "repair_fence"),
}
"""Who reads one document to act on another, and the guards that hold for it."""
READER_OF = {guard: reader for reader, guards in READERS.items() for guard in guards}
AFTER_THE_FACT = frozenset({"repair_stranded", "repair_above_both", "repair_is_marked"})
"""Guards that a search misses only where something impossible was left."""
UNOWNED = frozenset({"repair_leaves_what_has_no_submission", "removal_waits_for_landings"})
"""Guards that a search misses only where a job has no submission."""


class Guarded:
    """Knows which guards are dropped."""

    def __init__(self, without: frozenset[str]) -> None:
        if not without <= GUARDS.keys():
            raise ValueError(f"no such guard: {without - GUARDS.keys()}")
        self._without = without

    def _has(self, guard: str) -> bool:
        return guard not in self._without
