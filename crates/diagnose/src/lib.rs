//! What a device waited for.
