//! Decides before the first step: lanes, waits, windows, memory.
