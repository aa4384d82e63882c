//! Points on two spirals, a pure function of the step, and the inputs of a training step.

use graph::names;
use runtime::{HostTensor, Inputs};

/// Points `[count, 2]`, labels `[count]` and the scalars of a step.
pub fn inputs(step: usize, count: usize) -> Inputs {
    let (points, labels) = batch(step, count);
    let named = [
        ("points", HostTensor::from_f32([count, 2], &points)),
        ("labels", HostTensor::from_i32([count], &labels)),
        (names::LEARNING_RATE, HostTensor::scalar_f32(3e-3)),
        (names::LOCAL_COUNT, HostTensor::scalar_f32(count as f32)),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Coordinates `[count, 2]` and labels `[count]`.
fn batch(step: usize, count: usize) -> (Vec<f32>, Vec<i32>) {
    let mut points = vec![];
    let labels: Vec<i32> = (0..count).map(|index| (index % 2) as i32).collect();
    for (index, label) in labels.iter().enumerate() {
        // The fractional parts of multiples of the golden ratio fill 0 .. 1 evenly.
        let along = ((step * count + index) as f64 * 0.618_033_988_749_895).fract();
        let angle = along * 6.0 + f64::from(*label) * std::f64::consts::PI;
        let radius = 0.2 + along;
        points.extend([(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]);
    }
    (points, labels)
}
