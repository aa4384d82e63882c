//! Plans as text, JSON and tables: exact, reloadable, comparable; states never move.

mod support;

use graph::{Attributes, Collective, Program, Value};
use plan::{MemoryModel, Options, Plan, schedule};
use support::{Builder, Machine, packed, random_program, registry};

/// Attention over a packed projection, its gradient into a bucket, all-reduced, applied to two flat states.
fn small(name: &str, batch: usize) -> Builder {
    let mut b = Builder::new(name);
    let (time, width, heads) = (3, 4, 2);
    let flat = b.state("bucket.0", &[64]);
    let moment = b.state("bucket.0#exp_avg", &[64]);
    let x = b.input("x", &[batch, time, width]);
    let weight = b.op("unpack", Attributes::new().int("offset", 32).ints("shape", [4]), &[flat]);
    let scaled = b.op("mul", Attributes::new(), &[x, weight]);
    let y = packed(&mut b, scaled, [batch, time, width, heads]);
    let sums = [
        b.op("reduce_sum", Attributes::new().ints("axes", [0, 2]), &[y]),
        b.op("reduce_sum", Attributes::new().ints("axes", [0, 1]), &[y]),
    ];
    let attributes = Attributes::new().ints("offsets", [0, 32]).int("total", 64);
    let bucket = b.op("pack", attributes, &sums);
    let reduced = b.collective(Collective::ALL_REDUCE_SUM, bucket);
    let new_moment = b.op("add", Attributes::new(), &[moment, reduced]);
    let new_flat = b.op("sub", Attributes::new(), &[flat, new_moment]);
    b.update("bucket.0#exp_avg", new_moment);
    b.update("bucket.0", new_flat);
    b.output("y", y);
    b
}

fn plan_of(program: &Program, model: MemoryModel, ranks: usize) -> Plan {
    let options = Options { ranks, ..Options::default() };
    schedule::run(program, &Machine(model), &options).expect("an honest program")
}

#[test]
fn a_small_plan_as_text_and_table() {
    let program = small("step", 2).program();
    let plan = plan_of(&program, MemoryModel::Offsets, 2);
    insta::assert_snapshot!("small", plan.to_string());
    insta::assert_snapshot!("small_table", plan.table("step").expect("a step").to_string());
    let host = plan_of(&program, MemoryModel::Blocks, 2);
    insta::assert_snapshot!("small_blocks", host.to_string());
}

#[test]
fn json_reloads_to_equal_bytes() {
    for seed in 0..60 {
        let ranks = 1 + seed as usize % 3;
        let plan = plan_of(&random_program(seed, ranks), MemoryModel::Offsets, ranks);
        let text = plan.to_json().expect("JSON");
        let again = Plan::from_json(&text, &registry()).expect("a plan");
        assert_eq!(again, plan);
        assert_eq!(again.to_json().expect("JSON"), text);
        schedule::check(&again, &Machine(MemoryModel::Offsets)).expect("an honest plan");
        // A plan is a pure function of its arguments.
        let same = plan_of(&random_program(seed, ranks), MemoryModel::Offsets, ranks);
        assert_eq!(same.hash().expect("a hash"), plan.hash().expect("a hash"));
    }
}

#[test]
fn states_lie_at_the_same_offsets_in_every_function_and_shape() {
    let step = small("step", 2);
    let evaluate = small("evaluate", 2);
    let second = small("step.4", 4);
    let alone = plan_of(&small("step", 8).program(), MemoryModel::Offsets, 2);
    let functions = [step, evaluate, second];
    let states = functions[0].states.clone();
    let functions = functions.into_iter().map(|builder| builder.function).collect();
    let plan = plan_of(&Program { states, functions }, MemoryModel::Offsets, 2);
    let places = |plan: &Plan| -> Vec<_> {
        let places = plan.states.iter();
        places
            .map(|p| (p.state.clone(), p.window.clone(), plan.buffer(p.window.buffer).clone()))
            .collect()
    };
    assert_eq!(places(&plan), places(&alone));
    for (schedule, function) in plan.functions.iter().zip(&plan.program.functions) {
        for placement in &plan.states {
            let reads = function.graph.ids().map(|id| Value::new(id, 0)).filter(|value| {
                matches!(&function.graph.node(value.node).kind,
                    graph::Kind::State { name } if *name == placement.state)
            });
            let updates = function.updates.iter().filter(|u| u.state == placement.state);
            for value in reads.chain(updates.map(|update| update.value)) {
                assert_eq!(schedule.windows[&value], placement.window, "{}", schedule.name);
            }
        }
    }
    // The transient arena is the largest function's.
    let largest = plan_of(&small("step.4", 4).program(), MemoryModel::Offsets, 2);
    assert_eq!(plan.peak_bytes(), largest.peak_bytes());
}

#[test]
fn the_first_difference_is_named() {
    let one = plan_of(&small("step", 2).program(), MemoryModel::Offsets, 2);
    assert_eq!(one.first_difference(&one), None);
    let mut other = small("step", 2);
    let extra = other.function.updates[0].value;
    let extra = other.collective(Collective::Broadcast { root: 0 }, extra);
    other.output("extra", extra);
    let other = plan_of(&other.program(), MemoryModel::Offsets, 2);
    let difference = one.first_difference(&other).expect("a difference");
    assert_eq!(
        difference,
        "collective 2: nothing against step, communication 0: broadcast(f32[64]) {root=0} of bucket"
    );
    assert_ne!(one.collective_hash(), other.collective_hash());
    let mut moved = one.clone();
    moved.functions[0].steps[1].predicted_ns += 1;
    let difference = one.first_difference(&moved).expect("a difference");
    assert!(difference.starts_with("line of JSON"), "{difference}");
    assert_eq!(one.collective_hash(), moved.collective_hash());
}

#[test]
fn damaged_files_are_refused() {
    let text =
        plan_of(&small("step", 2).program(), MemoryModel::Offsets, 2).to_json().expect("JSON");
    let cases = [
        ("", "not a plan"),
        ("{}", "missing field"),
        (&text[..text.len() / 2], "not a plan"),
        (&text.replace("\"version\": 1", "\"version\": 2"), "version 2, expected 1"),
        (&text.replace("\"reduce_sum\"", "\"reduce_sun\""), "nearest is \"reduce_sum\""),
    ];
    for (text, expected) in cases {
        let error = Plan::from_json(text, &registry()).expect_err("damaged").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_list_of_passes() {
    let passes = plan::passes();
    let line = |pass: &plan::PassInfo| {
        let marker = if pass.optional { "" } else { " (always)" };
        format!("{}{marker}: {}", pass.name, pass.summary)
    };
    let lines: Vec<String> = passes.iter().map(line).collect();
    insta::assert_snapshot!("passes", lines.join("\n"));
    let program = small("step", 2).program();
    let leave_out = |name: &str| {
        let options = Options { without: vec![name.to_owned()], ..Options::default() };
        let optimizer = graph::optim::AdamW::default();
        plan::compile(&program, &optimizer, &Machine(MemoryModel::Offsets), &options)
            .expect_err("a refusal")
            .to_string()
    };
    assert_eq!(leave_out("memory"), "without: memory, expected a pass that can be left out");
    assert!(leave_out("fuze").starts_with("unknown pass \"fuze\", passes are precision, autodiff"));
}

#[test]
fn prediction_for_other_numbers_of_ranks() {
    let plan = plan_of(&small("step", 2).program(), MemoryModel::Offsets, 2);
    let function = plan.function("step").expect("a step");
    let collective = function.steps.iter().find(|step| step.node.0 == 31).expect("the all-reduce");
    let own = [(collective.bytes, collective.predicted_ns)];
    let same = plan.predict("step", 2, &own).expect("a step");
    assert_eq!(same.total_ns, function.predicted_ns);
    assert_eq!(same.exposed_ns, function.predicted_exposed_ns);
    // 256 bytes among n ranks: 2 (n - 1) / n of them on the wire.
    for (ranks, wire) in [(2, 256), (8, 448), (1024, 511)] {
        let curve = [(0, 0), (1_000_000, 1_000_000_000)];
        let found = plan.predict("step", ranks, &curve).expect("a step");
        let rest = same.total_ns - collective.predicted_ns;
        assert_eq!(found.total_ns, rest + wire * 1000, "{ranks}");
    }
    assert_eq!(plan.predict("stop", 2, &own), None);
}
