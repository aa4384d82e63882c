//! NCCL and CUPTI without a GPU: the tables load and the device-free calls work. Knows no device.

use native::{cupti, library, nccl};

#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn present(kind: library::Kind) -> bool {
    library::Library::open(kind).map_err(|error| println!("skipped: {error}")).is_ok()
}

#[test]
fn every_meeting_point_is_its_own() {
    if !present(library::Kind::Nccl) {
        return;
    }
    assert!(nccl::version().unwrap() >= 21800);
    assert_ne!(nccl::UniqueId::new().unwrap(), nccl::UniqueId::new().unwrap());
}

#[test]
fn an_empty_group_is_allowed_and_an_error_inside_ends_it() {
    if !present(library::Kind::Nccl) {
        return;
    }
    nccl::group(|| Ok(())).unwrap();
    let error = nccl::group(|| Err(native::Error::Argument("inside".into()))).unwrap_err();
    assert_eq!(error.to_string(), "inside");
    nccl::group(|| Ok(())).unwrap();
}

#[test]
fn the_tracer_tells_its_version() {
    if !present(library::Kind::Cupti) {
        return;
    }
    assert!(cupti::version().unwrap() > 0);
}
