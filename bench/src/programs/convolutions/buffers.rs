//! Memory of a measured convolution, and its results held against the reference. Knows no engine.

use anyhow::Result;
use bench::{
    harness::{Random, Session, encode, relative_error},
    reference::{Reference, Samples},
};
use native::{
    DataType,
    cudnn::{Bound, Handle, Plan},
    memory::{self, DeviceBuffer, DevicePointer},
};

use super::{
    patterns::{Pattern, Tensors},
    shapes::Shape,
};

/// Random patterns that buffers repeat; made once for a type.
pub struct Patterns {
    x: Vec<u16>,
    w: Vec<u16>,
    dy: Vec<u16>,
}

impl Patterns {
    /// Values of a type. Lengths are odd, so that pixels and filters differ.
    pub fn new(data_type: DataType) -> Patterns {
        let mut random = Random::new(21);
        let mut normals = |count, deviation| random.normals(data_type, count, deviation);
        Patterns {
            x: normals((1 << 20) + 7, 1.0),
            w: normals((1 << 19) + 21, 0.05),
            dy: normals((1 << 20) + 33, 0.1),
        }
    }
}

/// Buffers of one call. x and dx are images, y and dy outputs, w and dw filters.
struct Set {
    x: DeviceBuffer<u16>,
    dx: DeviceBuffer<u16>,
    y: DeviceBuffer<u16>,
    dy: DeviceBuffer<u16>,
    w: DeviceBuffer<u16>,
    dw: DeviceBuffer<u16>,
}

/// Everything a shape's patterns read and write.
pub struct Buffers {
    data_type: DataType,
    sets: Vec<Set>,
    scale_bias: [DeviceBuffer<u16>; 2],
    /// Mean, inverse deviation, scale, bias.
    normalisation: [DeviceBuffer<f32>; 4],
    reductions: [DeviceBuffer<f32>; 5],
    reference: Reference,
}

impl Buffers {
    /// Allocates and fills enough sets to keep the cache cold.
    pub fn new(
        session: &Session,
        shape: &Shape,
        data_type: DataType,
        patterns: &Patterns,
    ) -> Result<Buffers> {
        let context = &session.context;
        let filled = |len: usize, pattern: &[u16]| -> Result<DeviceBuffer<u16>> {
            let mut buffer = DeviceBuffer::new(context, len)?;
            buffer.fill_repeating(pattern)?;
            Ok(buffer)
        };
        let bytes = 2 * (shape.x() + shape.w() + shape.y());
        let sets = (0..session.rotating_sets(bytes))
            .map(|_| {
                Ok(Set {
                    x: filled(shape.x(), &patterns.x)?,
                    dx: DeviceBuffer::new(context, shape.x())?,
                    y: DeviceBuffer::new(context, shape.y())?,
                    dy: filled(shape.y(), &patterns.dy)?,
                    w: filled(shape.w(), &patterns.w)?,
                    dw: DeviceBuffer::new(context, shape.w())?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let channels = shape.geometry.c.max(shape.geometry.k) as usize;
        let mut random = Random::new(8);
        let mut around = |middle: f32, spread: f32| -> Vec<f32> {
            (0..channels).map(|_| middle + spread * random.normal()).collect()
        };
        let short = |values: Vec<f32>| {
            let bits: Vec<u16> = values.into_iter().map(|v| encode(data_type, v)).collect();
            DeviceBuffer::from_slice(context, &bits)
        };
        let scale_bias = [short(around(1.0, 0.2))?, short(around(0.0, 0.5))?];
        let mut wide = |middle, spread| DeviceBuffer::from_slice(context, &around(middle, spread));
        let normalisation = [wide(0.0, 0.1)?, wide(1.0, 0.05)?, wide(1.0, 0.2)?, wide(0.0, 0.5)?];
        let zeros = || DeviceBuffer::<f32>::zeroed(context, channels);
        let reductions = [zeros()?, zeros()?, zeros()?, zeros()?, zeros()?];
        let reference = Reference::new(session, data_type)?;
        Ok(Buffers { data_type, sets, scale_bias, normalisation, reductions, reference })
    }

    /// How many sets there are.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Binds a plan to every set.
    pub fn bind(&self, plan: &Plan, t: &Tensors, workspace: DevicePointer) -> Result<Vec<Bound>> {
        let mut bound = vec![];
        for set in &self.sets {
            let pairs = [
                (t.x, &set.x),
                (t.dx, &set.dx),
                (t.y, &set.y),
                (t.dy, &set.dy),
                (t.w, &set.w),
                (t.dw, &set.dw),
            ];
            let mut addresses: Vec<_> = pairs
                .into_iter()
                .filter_map(|(tensor, buffer)| Some((tensor?, buffer.pointer())))
                .collect();
            for (tensors, buffers) in t.scale_bias.iter().map(|t| (t, &self.scale_bias)) {
                addresses.extend(tensors.iter().zip(buffers).map(|(t, b)| (*t, b.pointer())));
            }
            for (tensors, buffers) in t.normalisation.iter().map(|t| (t, &self.normalisation)) {
                addresses.extend(tensors.iter().zip(buffers).map(|(t, b)| (*t, b.pointer())));
            }
            for (tensor, buffer) in t.reductions.iter().zip(&self.reductions) {
                addresses.extend(tensor.map(|tensor| (tensor, buffer.pointer())));
            }
            bound.push(plan.bind(&addresses, workspace)?);
        }
        Ok(bound)
    }

    /// Runs `bound` (of set 0) on poisoned outputs and returns the relative error of its main output at sampled
    /// points and that of its per-channel results.
    pub fn errors(
        &self,
        session: &Session,
        handle: &Handle,
        shape: &Shape,
        pattern: Pattern,
        bound: &Bound,
        expected: &Expected,
    ) -> Result<(f64, Option<f64>)> {
        let set = &self.sets[0];
        let output = match pattern.plain() {
            Pattern::Forward => &set.y,
            Pattern::DataGradient => &set.dx,
            _ => &set.dw,
        };
        memory::fill_on(output.pointer(), 0xFF, output.bytes(), &session.stream)?;
        for reduction in &self.reductions {
            memory::fill_on(reduction.pointer(), 0xFF, reduction.bytes(), &session.stream)?;
        }
        bound.execute(handle)?;
        session.stream.synchronize()?;
        let got = self.reference.gather(output.pointer(), self.data_type, &expected.samples)?;
        let error = relative_error(got.into_iter().zip(expected.values.iter().copied()));
        Ok((error, self.reduction_error(session, shape, pattern)?))
    }

    /// Sums of each channel over the output as it was written. The distance of a sum is taken in units of
    /// `sqrt(pixels * sum of squares)`, so that a mean near zero counts by the deviation.
    fn reduction_error(
        &self,
        session: &Session,
        shape: &Shape,
        pattern: Pattern,
    ) -> Result<Option<f64>> {
        let (set, g, null) = (&self.sets[0], &shape.geometry, DevicePointer::NULL);
        let backward = pattern == Pattern::DataGradientNormalisation;
        if !backward
            && !matches!(pattern, Pattern::ForwardStatistics | Pattern::NormalisedForwardStatistics)
        {
            return Ok(None);
        }
        let of =
            |value: &DeviceBuffer<u16>, pixels: i64, channels: i64, rest: [DevicePointer; 3]| {
                let [x, mean, inverse] = rest;
                let pointers = [value.pointer(), x, mean, inverse];
                self.reference.channel_sums(session, pointers, [pixels, channels])
            };
        let (pixels, channels) =
            if backward { (g.n * g.h * g.w, g.c) } else { (g.n * g.p * g.q, g.k) };
        let value = if backward { &set.dx } else { &set.y };
        let (sums, squares) = of(value, pixels, channels, [null; 3])?;
        let [first, second] = [&self.reductions[0], &self.reductions[1]];
        let (first, second) =
            (first.range_to_vec(0, channels as usize)?, second.range_to_vec(0, channels as usize)?);
        let mut worst = 0f64;
        let mut hold = |got: f32, expected: f64, unit: f64| {
            let distance = (f64::from(got) - expected).abs() / unit;
            worst = if distance.is_nan() { f64::INFINITY } else { worst.max(distance) };
        };
        let scale = |c: usize| (pixels as f64 * squares[c]).sqrt().max(f64::MIN_POSITIVE);
        if backward {
            // The first result is the gradient of the scale (dx times the normalised x), the second that of the bias.
            let [mean, inverse, ..] = &self.normalisation;
            let rest = [set.x.pointer(), mean.pointer(), inverse.pointer()];
            let (_, products) = of(value, pixels, channels, rest)?;
            for c in 0..channels as usize {
                hold(first[c], products[c], scale(c));
                hold(second[c], sums[c], scale(c));
            }
        } else {
            for c in 0..channels as usize {
                hold(first[c], sums[c], scale(c));
                hold(second[c], squares[c], squares[c].max(f64::MIN_POSITIVE));
            }
        }
        Ok(Some(worst))
    }

    /// What the main output of `pattern` should hold at sampled points.
    pub fn expected(&self, session: &Session, shape: &Shape, pattern: Pattern) -> Result<Expected> {
        let (set, g, null) = (&self.sets[0], shape.geometry, DevicePointer::NULL);
        let (scale, bias) = match pattern {
            Pattern::NormalisedForwardStatistics | Pattern::NormalisedWeightGradient => {
                (self.scale_bias[0].pointer(), self.scale_bias[1].pointer())
            }
            _ => (null, null),
        };
        let (x, w, dy) = (set.x.pointer(), set.w.pointer(), set.dy.pointer());
        let count = if pattern.plain() == Pattern::WeightGradient { 64 } else { 512 };
        let samples = |end| Samples::new(session, 17, count, end);
        let (samples, values) = match pattern.plain() {
            Pattern::Forward => {
                let samples = samples(shape.y())?;
                let values = self.reference.convolution(g, [x, w, scale, bias], &samples)?;
                (samples, values)
            }
            Pattern::DataGradient => {
                let samples = samples(shape.x())?;
                let mut pointers = [dy, w, x, null, null, null, null];
                if pattern == Pattern::DataGradientNormalisation {
                    for (pointer, buffer) in pointers[3..].iter_mut().zip(&self.normalisation) {
                        *pointer = buffer.pointer();
                    }
                }
                let values = self.reference.data_gradient(g, pointers, &samples)?;
                (samples, values)
            }
            _ => {
                let samples = samples(shape.w())?;
                let pointers = [x, dy, scale, bias];
                let values = self.reference.weight_gradient(g, pointers, &samples)?;
                (samples, values)
            }
        };
        Ok(Expected { samples, values })
    }
}

/// Reference values at sampled points.
pub struct Expected {
    samples: Samples,
    values: Vec<f64>,
}
