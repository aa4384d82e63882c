//! NVIDIA libraries by run-time loading behind safe types: the only crate with unsafe code.
