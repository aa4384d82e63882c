//! GPT-2 124M planned for the H200 without a GPU: kernels, bytes, predicted time.

use graph::{DType, Node, Type, optim::AdamW};
use models::{SettingValue, Settings, Shapes};
use plan::{
    Arena, Options, Plan, compile,
    options::{Precision, Strategy},
    target,
};

/// 32 x 1024 tokens a rank, bf16 with a bf16 residual stream, vocabulary padded to a multiple of 128.
fn gpt2(options: Options) -> Plan {
    let family = models::zoo::family("gpt2").expect("gpt2");
    let vocabulary = SettingValue::Integer(50304);
    let settings = Settings::of(family, Some("124m")).with("vocabulary", vocabulary);
    let model = family.model(&settings).expect("a model");
    let shapes = Shapes { batch: 32, length: 1024, generate: false };
    let program = models::program(&graph::ops::registry(), &*model, shapes).expect("a program");
    let precision = Precision { compute: DType::BF16, residual: DType::BF16, gradient: DType::F32 };
    let options = Options { precision, ..options };
    compile(&program, &AdamW::default(), &target::h200(), &options).expect("a plan")
}

fn multiplies(node: &Node) -> bool {
    ["linear", "matmul", "attention"].iter().any(|name| node.name().starts_with(name))
}

#[test]
fn gpt2_124m_on_one_card() {
    let plan = gpt2(Options::default());
    let (step, program) = (plan.function("step"), plan.program.function("step"));
    let (step, program) = (step.expect("a step"), program.expect("a step"));
    let kernels: u32 = step.steps.iter().map(|step| step.kernels).sum();
    let mut moved = 0;
    for step in &step.steps {
        let node = program.graph.node(step.node);
        let bytes = |ty: Option<&Type>| ty.map_or(0, |ty| ty.bytes() as u64);
        // A bias gradient beside a product reads the output's gradient once more.
        moved += match (node.name(), node.outputs.len()) {
            ("linear_gelu_gradient", 2) => bytes(node.outputs.first()),
            ("linear_bias_gradient", 2) => bytes(node.inputs.get(1).map(|&v| program.graph.ty(v))),
            _ if multiplies(node) => 0,
            _ => step.bytes,
        };
    }
    assert!(kernels <= 360, "{kernels} kernels");
    assert!(moved <= 23_000_000_000, "{moved} bytes outside products and attention");
    assert!(step.predicted_ns <= 54_000_000, "{} ns", step.predicted_ns);
    let copies = step.steps.iter().filter(|s| program.graph.node(s.node).is_op("copy")).count();
    assert_eq!(copies, 0);
    let table = plan.table("step").expect("a step");
    insta::assert_snapshot!(
        "gpt2_124m",
        format!("{table}\nmoved outside products and attention: {:.1} GB", moved as f64 / 1e9)
    );
}

#[test]
fn gpt2_124m_on_two_cards() {
    for (strategy, name) in [(Strategy::Ddp, "ddp"), (Strategy::Zero1, "zero1")] {
        let plan = gpt2(Options { ranks: 2, strategy, ..Options::default() });
        let step = plan.function("step").expect("a step");
        let exposed = step.predicted_exposed_ns as f64 / step.predicted_ns as f64;
        assert!(exposed < 0.04, "{name}: {exposed}");
        assert!(plan.arena_bytes(Arena::Communication) > 400_000_000, "{name}");
        let table = plan.table("step").expect("a step").to_string();
        insta::assert_snapshot!(format!("gpt2_124m_{name}"), table);
    }
}
