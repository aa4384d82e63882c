//! Ranks as threads: every collective bitwise as specified, and no rank left waiting for one that is gone.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    thread,
    time::{Duration, Instant},
};

use graph::{Collective, DType, Shape, Tensor, Type};
use proptest::prelude::*;
use runtime::{
    Communicator, HostTensor, RuntimeError,
    in_process::{LinkModel, world, world_with_timeout},
};

/// Runs `body` on every rank's thread and yields the results in rank order.
fn on_ranks<R: Send>(
    world: Vec<Box<dyn Communicator>>,
    body: impl Fn(Box<dyn Communicator>) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> =
            world.into_iter().map(|member| scope.spawn(move || body(member))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn run(collective: Collective, inputs: &[Tensor]) -> Vec<Tensor> {
    on_ranks(world(inputs.len(), None), |member| {
        let input = HostTensor::from_tensor(&inputs[member.rank()]);
        let mut output = HostTensor::zeros(collective.infer(&input.ty).unwrap());
        let mut channel = member.channel(0).unwrap();
        // Twice: buffers of the first time are used again.
        for _ in 0..2 {
            let exchange = channel.exchange(collective, &input.ty, &input.bytes).unwrap();
            exchange.write(&mut output.bytes);
            exchange.settle();
        }
        output.to_tensor()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn every_collective_equals_its_specification_bitwise(
        ranks in 1usize..5,
        part in 0usize..40,
        columns in 1usize..4,
        seed in any::<u64>(),
    ) {
        for dtype in DType::ALL {
            let shape = Shape::from([ranks * part, columns]);
            let inputs: Vec<Tensor> = (0..ranks as u64)
                .map(|rank| {
                    let key = graph::random::sample_key(seed, 1, 0, rank);
                    let values = (0..shape.elements() as u32)
                        .map(|i| f64::from(key.bits(i) % 2_000_001) / 1e4 - 100.0);
                    Tensor::from_f64(Type::new(dtype, shape.clone()), values)
                })
                .collect();
            for collective in Collective::samples(ranks) {
                let expected = collective.specification(&inputs).unwrap();
                prop_assert_eq!(run(collective, &inputs), expected, "{} of {}", collective.name(), dtype);
            }
        }
    }
}

fn one(channel: &mut dyn runtime::Channel, elements: usize) -> Result<(), RuntimeError> {
    let tensor = HostTensor::zeros(Type::new(DType::F32, [elements]));
    let exchange = channel.exchange(Collective::ALL_REDUCE_SUM, &tensor.ty, &tensor.bytes)?;
    exchange.settle();
    Ok(())
}

#[test]
fn the_wire_takes_its_modelled_time_one_collective_after_the_other() {
    let link = LinkModel { latency: Duration::from_millis(5), bytes_per_second: 1e6 };
    let started = Instant::now();
    on_ranks(world(2, Some(link)), |member| {
        let mut channel = member.channel(0).unwrap();
        for _ in 0..3 {
            one(&mut *channel, 5_000).unwrap();
        }
    });
    // 20,000 bytes on the wire at 1 MB/s and 5 ms of latency, three times.
    assert!(started.elapsed() >= Duration::from_millis(75), "{:?}", started.elapsed());
}

#[test]
fn a_rank_that_fails_leaves_or_differs_is_named_and_nobody_waits() {
    let results = on_ranks(world(3, None), |member| {
        let mut channel = member.channel(0).unwrap();
        if member.rank() == 2 {
            member.abort("ids[3] is 70000, the table has 50257 rows");
            return Ok(());
        }
        one(&mut *channel, 4)
    });
    let text = results[0].as_ref().unwrap_err().to_string();
    assert_eq!(text, "rank 2 failed: ids[3] is 70000, the table has 50257 rows");
    assert_eq!(results[1].as_ref().unwrap_err().to_string(), text);

    let results = on_ranks(world(3, None), |member| {
        let mut channel = member.channel(0).unwrap();
        one(&mut *channel, 4)?;
        if member.rank() == 1 { Ok(()) } else { one(&mut *channel, 4) }
    });
    assert_eq!(
        results[2].as_ref().unwrap_err().to_string(),
        "rank 1 ended before it took part in all_reduce number 2 of lane 0"
    );

    let results = on_ranks(world(2, None), |member| {
        let mut channel = member.channel(0).unwrap();
        one(&mut *channel, 4 + member.rank())
    });
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert!(
        results.iter().flat_map(|r| r.as_ref().err()).any(|error| {
            let text = error.to_string();
            text.contains("all_reduce(f32[5])") && text.contains("all_reduce(f32[4])")
        }),
        "{results:?}"
    );
}

#[test]
fn a_panicking_rank_and_a_silent_one_end_the_wait() {
    let mut members = world(2, None);
    let (second, first) = (members.pop().unwrap(), members.pop().unwrap());
    let dying = thread::spawn(move || {
        let _held = second;
        panic!("planned");
    });
    let mut channel = first.channel(0).unwrap();
    let error = one(&mut *channel, 1).unwrap_err();
    assert_eq!(error.to_string(), "rank 1 failed: its thread panicked");
    assert!(dying.join().is_err());

    let members = world_with_timeout(2, None, Duration::from_millis(30));
    let mut channel = members[0].channel(0).unwrap();
    let error = one(&mut *channel, 1).unwrap_err();
    assert!(matches!(&error, RuntimeError::Timeout { ranks, .. } if *ranks == [1]), "{error}");
}
