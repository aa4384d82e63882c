//! Runs that must agree: other numbers of ranks and micro-steps, sharded optimizers, repeats, interruptions.

mod support;

use runtime::HostTensor;
use support::Ran;
use train::checkpoint::Snapshot;

fn fresh(sets: &[&str]) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    support::train(folder.path(), sets, None)
}

/// Largest difference of a parameter, relative to its tensor's largest element.
fn apart(a: &Snapshot, b: &Snapshot) -> f64 {
    assert!(a.parameters.keys().eq(b.parameters.keys()));
    let values = |snapshot: &Snapshot, name: &str| {
        let tensor = &snapshot.parameters[name];
        HostTensor { ty: tensor.ty.clone(), bytes: tensor.bytes.clone() }.to_f64()
    };
    a.parameters
        .keys()
        .map(|name| {
            let (a, b) = (values(a, name), values(b, name));
            let largest = a.iter().fold(1e-30_f64, |largest, value| largest.max(value.abs()));
            a.iter().zip(&b).fold(0.0_f64, |apart, (a, b)| apart.max((a - b).abs())) / largest
        })
        .fold(0.0, f64::max)
}

fn losses_apart(a: &Ran, b: &Ran) -> f64 {
    assert_eq!(a.steps.len(), b.steps.len());
    a.steps.iter().zip(&b.steps).fold(0.0, |apart, (a, b)| apart.max((a.loss - b.loss).abs()))
}

#[test]
fn ranks_and_micro_steps_change_nothing_but_rounding() {
    // Adam makes steps of full size out of gradients that are rounding alone, such as those of the keys' bias: parameters
    // are compared under momentum, losses under both.
    for optimizer in ["adamw", "sgd"] {
        let name = format!("optimizer.name={optimizer}");
        let common =
            [name.as_str(), "model.dropout=0.1", "optimizer.momentum=0.9", "train.clip_norm=1.0"];
        let rate = if optimizer == "sgd" {
            "optimizer.learning_rate=0.1"
        } else {
            "optimizer.learning_rate=3e-3"
        };
        let with = |sets: &[&str]| fresh(&[&common[..], &[rate], sets].concat());
        let one = with(&[]);
        assert!(one.steps[19].loss < one.steps[0].loss - 0.3);
        for sets in [
            &["parallel.ranks=2"][..],
            &["parallel.ranks=4"],
            &["train.accumulation=4"],
            &["parallel.ranks=2", "train.accumulation=2"],
            &["parallel.ranks=4", "parallel.strategy=zero1"],
        ] {
            let other = with(sets);
            let (losses, parameters) =
                (losses_apart(&one, &other), apart(&one.snapshot, &other.snapshot));
            println!("{optimizer} {sets:?}: losses {losses:e} apart, parameters {parameters:e}");
            let validation = |ran: &Ran| ran.outcome.validation.expect("validated at the end");
            // Micro-steps make validation batches smaller, so that other samples take part.
            let same_samples = !sets.iter().any(|set| set.starts_with("train.accumulation"));
            assert!(
                !same_samples || (validation(&one) - validation(&other)).abs() < 1e-5,
                "{sets:?}"
            );
            assert!(losses < 1e-5, "{optimizer} {sets:?}: losses {losses:e} apart");
            assert!(
                optimizer == "adamw" || parameters < 1e-5,
                "{sets:?}: parameters {parameters:e} apart"
            );
        }
    }
}

#[test]
fn sharding_the_optimizer_changes_no_bit() {
    let ddp = fresh(&["parallel.ranks=2"]);
    let zero1 = fresh(&["parallel.ranks=2", "parallel.strategy=zero1"]);
    assert_eq!(losses_apart(&ddp, &zero1), 0.0);
    assert_eq!(ddp.snapshot.parameters, zero1.snapshot.parameters);
    assert_eq!(ddp.snapshot.state, zero1.snapshot.state);
}

#[test]
fn a_repeat_and_an_interruption_change_no_bit() {
    for sets in [
        &["parallel.ranks=2", "model.dropout=0.1", "train.clip_norm=1.0"][..],
        &["parallel.ranks=2", "parallel.strategy=zero1", "train.accumulation=2"],
    ] {
        let whole = fresh(sets);
        let again = fresh(sets);
        assert_eq!(
            whole.steps.iter().map(|s| s.loss).collect::<Vec<_>>(),
            again.steps.iter().map(|s| s.loss).collect::<Vec<_>>()
        );
        assert_eq!(whole.snapshot, again.snapshot);

        let folder = tempfile::tempdir().expect("a folder");
        let halves: Vec<&str> =
            sets.iter().copied().chain(["checkpoint.every=10", "checkpoint.keep=5"]).collect();
        support::train(folder.path(), &halves, None);
        let half = train::checkpoint::load(&folder.path().join("checkpoints/step-00000010"))
            .expect("step 10");
        let rest = tempfile::tempdir().expect("a folder");
        let resumed = support::train(rest.path(), sets, Some(half));
        assert_eq!(resumed.steps.len(), 10);
        assert_eq!(resumed.snapshot, whole.snapshot, "{sets:?}");
    }
}
