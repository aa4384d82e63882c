//! Every operator against its own samples, in one loop.

use graph::{conformance, ops};

#[test]
fn every_operator_conforms() {
    let registry = ops::registry();
    let problems: Vec<String> = registry
        .iter()
        .flat_map(|definition| conformance::problems(&registry, definition.name()))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
