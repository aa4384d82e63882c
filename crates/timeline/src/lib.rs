//! What ran when: tracks, spans, flows, counters and facts of a run.
