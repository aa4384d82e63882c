//! The processor as a target: every operator has one candidate, memory is whole blocks.
//!
//! Knows names and rates; the kernels are the host device's.

use graph::{Collective, Kind, Node};

use super::{Candidate, MemoryModel, Request, Target};

/// Operators of which element i of the output needs only elements i of the inputs.
pub(super) const ELEMENTWISE: &[&str] = &[
    "abs",
    "accumulate",
    "add",
    "cast",
    "div",
    "equal",
    "exp",
    "gelu",
    "gelu_gradient",
    "greater",
    "is_finite",
    "less",
    "less_equal",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "minimum",
    "mul",
    "neg",
    "power",
    "relu",
    "rsqrt",
    "sigmoid",
    "sqrt",
    "square",
    "sub",
    "tanh",
    "where",
];

/// Operators that read any strides on every input, beside the elementwise ones.
const STRIDED_INPUTS: &[&str] =
    &["copy", "reduce_sum", "reduce_mean", "reduce_max", "attention", "attention_gradient"];

/// The host: rates of a laptop's two cores.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Multiplications and additions per second of matrix products.
    pub matrix_flops_per_second: f64,
    /// Bytes per second of other work.
    pub memory_bytes_per_second: f64,
    /// Nanoseconds to start one step.
    pub launch_ns: u64,
    /// Bytes per second of one rank's link.
    pub link_bytes_per_second: f64,
    /// Nanoseconds before the first byte of a collective arrives.
    pub link_latency_ns: u64,
}

/// The host target without a link model.
pub fn host() -> Host {
    Host {
        matrix_flops_per_second: 40e9,
        memory_bytes_per_second: 4e9,
        launch_ns: 2_000,
        link_bytes_per_second: 2e9,
        link_latency_ns: 20_000,
    }
}

impl Target for Host {
    fn name(&self) -> &str {
        "host"
    }

    fn memory_model(&self) -> MemoryModel {
        MemoryModel::Blocks
    }

    fn patterns(&self) -> Vec<String> {
        ["elementwise", "cross_entropy_with_gradient"].map(str::to_owned).to_vec()
    }

    fn candidates(&self, request: &Request<'_>) -> Vec<Candidate> {
        let node = request.node;
        let known = match &node.kind {
            Kind::State { .. } => false,
            Kind::Region(region) => self.patterns().contains(&region.name),
            _ => true,
        };
        if !known {
            return vec![];
        }
        let (inputs, outputs) = (0..node.inputs.len() as u16, 0..node.outputs.len() as u16);
        let elementwise = is_elementwise(node);
        let strided_inputs = match node.name() {
            _ if elementwise => inputs.collect(),
            name if STRIDED_INPUTS.contains(&name) => inputs.collect(),
            _ => vec![],
        };
        let strided_outputs = match node.name() {
            "copy" | "attention" => vec![0],
            "attention_gradient" => vec![0, 1, 2],
            _ if elementwise => outputs.collect(),
            _ => vec![],
        };
        vec![Candidate {
            id: format!("host:{}", node.name()),
            workspace: 0,
            kernels: 1,
            deterministic: true,
            strided_inputs,
            strided_outputs,
            reuse: reuse(request),
            accumulates: vec![],
            nanoseconds: self.nanoseconds(request),
        }]
    }
}

impl Host {
    fn nanoseconds(&self, request: &Request<'_>) -> u64 {
        let seconds = match &request.node.kind {
            Kind::Collective(_) => {
                let wire = request.bytes as f64 / self.link_bytes_per_second;
                return self.link_latency_ns + (wire * 1e9) as u64;
            }
            _ => {
                let product = request.flops as f64 / self.matrix_flops_per_second;
                product.max(request.bytes as f64 / self.memory_bytes_per_second)
            }
        };
        self.launch_ns + (seconds * 1e9) as u64
    }
}

/// Whether a node is an elementwise operator or region.
pub(super) fn is_elementwise(node: &Node) -> bool {
    match &node.kind {
        Kind::Region(region) => region.name == "elementwise",
        Kind::Op(op) => ELEMENTWISE.contains(&op.name.as_str()),
        _ => false,
    }
}

/// Pairs `(output, input)` that may share memory: equal shapes and element sizes where element i needs only elements
/// i, and collectives in place.
pub(super) fn reuse(request: &Request<'_>) -> Vec<(u16, u16)> {
    let node = request.node;
    match &node.kind {
        Kind::Collective(
            Collective::AllReduce { .. }
            | Collective::ReduceScatter { .. }
            | Collective::AllGather { .. },
        ) => return vec![(0, 0)],
        _ if is_elementwise(node) => {}
        _ => return vec![],
    }
    let mut pairs = vec![];
    for (output, to) in node.outputs.iter().enumerate() {
        for (input, from) in request.inputs.iter().enumerate() {
            if to.shape == from.shape && to.dtype.bytes() == from.dtype.bytes() {
                pairs.push((output as u16, input as u16));
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use graph::Class;

    use super::*;

    #[test]
    fn elementwise_operators_are_those_of_the_catalogue() {
        let registry = graph::ops::registry();
        for op in registry.iter().filter(|op| op.class() == Class::Elementwise) {
            assert!(
                ELEMENTWISE.contains(&op.name()) || ["copy", "dropout"].contains(&op.name()),
                "{}",
                op.name()
            );
        }
        for name in ELEMENTWISE {
            let class = registry.get(name).map(|op| op.class());
            assert!(class.is_err() || class == Ok(Class::Elementwise), "{name}: {class:?}");
        }
    }
}
