//! Three shape errors in one model come out together, each with module path, shapes and source line.

use graph::{
    DType, names, ops,
    trace::{Mode, Tracer},
};

#[test]
fn three_shape_errors_come_out_together() {
    let mut tracer = Tracer::new(&ops::registry());
    let p = tracer.parameters();
    let (first, second) =
        (p.sub("mlp").linear("first", 8, 16), p.sub("mlp").linear("second", 12, 4));
    tracer.function(names::TRAIN, Mode::Training, |context| {
        let x = context.input("x", DType::F32, &[2, 8]);
        let labels = context.input("labels", DType::I32, &[2]);
        let hidden = x.linear(&first);
        let wrong = hidden.linear(&second); // 16 features into a layer of 12
        let _ = context.scope("gate", || &hidden * &x); // [2, 16] with [2, 8]
        let _ = context.scope("view", || hidden.reshape(&[3, 5])); // 32 elements as 15
        let (sum, count) = wrong.cross_entropy(&labels, -100, 0.0);
        context.loss(&sum, &count);
    });
    let text = tracer.finish().expect_err("three errors").to_string();
    let lines: Vec<&str> = text.lines().collect();
    println!("{text}");
    assert_eq!(lines.len(), 3, "{text}");
    for (line, words) in lines.iter().zip([
        ["mlp.second", "16", "12", "errors.rs:18"],
        ["gate", "[2, 16]", "[2, 8]", "errors.rs:19"],
        ["view", "[2, 16]", "[3, 5]", "errors.rs:20"],
    ]) {
        for word in words {
            assert!(line.contains(word), "{line:?} does not name {word:?}");
        }
    }
}
