//! Slow reference kernels, compiled at run time, against which fast engines are held at sampled points.
//! Knows convolutions and products; knows no engine.

use anyhow::Result;
use bytemuck::{Pod, Zeroable};
use native::{
    DataType,
    memory::{DeviceBuffer, DevicePointer},
    module::{Arguments, Launch, Module},
    nvrtc::{self, Compiled},
};

use crate::harness::{Random, Session};

/// A convolution's sizes as the kernels take them; layouts are N H W C and K R S C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
#[expect(missing_docs, reason = "the letters of every convolution")]
pub struct Geometry {
    pub n: i64,
    pub c: i64,
    pub h: i64,
    pub w: i64,
    pub k: i64,
    pub r: i64,
    pub s: i64,
    pub p: i64,
    pub q: i64,
    pub before_h: i64,
    pub before_w: i64,
    pub stride: i64,
}

/// The kernels for one 16-bit type.
pub struct Reference {
    module: Module,
    stream: native::driver::Stream,
}

/// Positions of an output at which values are compared.
pub struct Samples {
    positions: DeviceBuffer<i64>,
    values: DeviceBuffer<f64>,
}

impl Samples {
    /// `count` random positions below `end`.
    pub fn new(session: &Session, seed: u64, count: usize, end: usize) -> Result<Samples> {
        let mut random = Random::new(seed);
        let positions: Vec<i64> = (0..count).map(|_| random.below(end) as i64).collect();
        Ok(Samples {
            positions: DeviceBuffer::from_slice(&session.context, &positions)?,
            values: DeviceBuffer::new(&session.context, count)?,
        })
    }

    /// The positions.
    pub fn positions(&self) -> Result<Vec<i64>> {
        Ok(self.positions.to_vec()?)
    }
}

/// Compiles the kernels for `data_type`. Needs no device.
pub fn compile(data_type: DataType, architecture: &str) -> native::Result<Compiled> {
    let options: &[&str] = if data_type == DataType::Bf16 { &["-DBF16"] } else { &[] };
    nvrtc::compile("reference.cu", include_str!("reference.cu"), architecture, options)
}

impl Reference {
    /// Compiles and loads the kernels.
    pub fn new(session: &Session, data_type: DataType) -> Result<Reference> {
        let architecture = session.context.device().architecture();
        let compiled = compile(data_type, &architecture)?;
        let module = Module::load(&session.context, &compiled.cubin)?;
        Ok(Reference { module, stream: session.stream.clone() })
    }

    /// Expected values of `y = x * w`, `x` through `max(0, x scale + bias)` where scale and bias are not null.
    pub fn convolution(
        &self,
        geometry: Geometry,
        [x, w, scale, bias]: [DevicePointer; 4],
        samples: &Samples,
    ) -> Result<Vec<f64>> {
        let arguments = Arguments::new().value(geometry).pointer(x).pointer(w);
        let arguments = arguments.pointer(scale).pointer(bias);
        self.expected("convolution", arguments, samples)
    }

    /// Expected values of the data gradient; masked by the batch-normalised `x` where `mean` is not null.
    pub fn data_gradient(
        &self,
        geometry: Geometry,
        pointers: [DevicePointer; 7],
        samples: &Samples,
    ) -> Result<Vec<f64>> {
        let arguments = Arguments::new().value(geometry);
        let arguments = pointers.into_iter().fold(arguments, Arguments::pointer);
        self.expected("data_gradient", arguments, samples)
    }

    /// Expected values of the weight gradient.
    pub fn weight_gradient(
        &self,
        geometry: Geometry,
        [x, dy, scale, bias]: [DevicePointer; 4],
        samples: &Samples,
    ) -> Result<Vec<f64>> {
        let arguments = Arguments::new().value(geometry).pointer(x).pointer(dy);
        let arguments = arguments.pointer(scale).pointer(bias);
        self.expected("weight_gradient", arguments, samples)
    }

    /// Expected values of a matrix product before any epilogue. Strides are `(row, inner)` of the left operand and
    /// `(inner, column)` of the right one.
    pub fn product(
        &self,
        left: (DevicePointer, i64, i64),
        right: (DevicePointer, i64, i64),
        [inner, columns]: [i64; 2],
        samples: &Samples,
    ) -> Result<Vec<f64>> {
        let arguments = Arguments::new().pointer(left.0).value(left.1).value(left.2);
        let arguments = arguments.pointer(right.0).value(right.1).value(right.2);
        self.expected("product", arguments.value(inner).value(columns), samples)
    }

    fn expected(&self, name: &str, arguments: Arguments, samples: &Samples) -> Result<Vec<f64>> {
        let arguments = arguments.buffer(&samples.positions).buffer(&samples.values);
        let launch = Launch::linear(samples.positions.len() as u32, 256);
        self.module.function(name)?.launch(&self.stream, launch, &arguments)?;
        self.stream.synchronize()?;
        Ok(samples.values.to_vec()?)
    }

    /// The values that `from` (of the kernels' 16-bit type, or fp32) has at the samples.
    pub fn gather(
        &self,
        from: DevicePointer,
        data_type: DataType,
        samples: &Samples,
    ) -> Result<Vec<f64>> {
        let count = samples.positions.len();
        let arguments = Arguments::new()
            .pointer(from)
            .value(i32::from(data_type == DataType::F32))
            .buffer(&samples.positions)
            .value(count as i32)
            .buffer(&samples.values);
        let launch = Launch::linear(count.div_ceil(256) as u32, 256);
        self.module.function("gather")?.launch(&self.stream, launch, &arguments)?;
        self.stream.synchronize()?;
        Ok(samples.values.to_vec()?)
    }

    /// How many elements of two buffers differ, for each of three parts that alternate every `step` elements.
    pub fn differing(
        &self,
        session: &Session,
        [a, b]: [DevicePointer; 2],
        count: usize,
        step: usize,
    ) -> Result<[u64; 3]> {
        let counts = DeviceBuffer::<u64>::zeroed(&session.context, 3)?;
        let arguments = Arguments::new().pointer(a).pointer(b).value(count as i64);
        let arguments = arguments.value(step as i64).buffer(&counts);
        let launch = Launch::linear(1024, 256);
        self.module.function("differing")?.launch(&self.stream, launch, &arguments)?;
        self.stream.synchronize()?;
        let counts = counts.to_vec()?;
        Ok([counts[0], counts[1], counts[2]])
    }

    /// Per-channel sums of `y [pixels, channels]` and of its squares; where `x` is not null, of `y` and of `y` times
    /// the normalised `x`.
    pub fn channel_sums(
        &self,
        session: &Session,
        [y, x, mean, inverse]: [DevicePointer; 4],
        [pixels, channels]: [i64; 2],
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        let first = DeviceBuffer::<f64>::new(&session.context, channels as usize)?;
        let second = DeviceBuffer::<f64>::new(&session.context, channels as usize)?;
        let arguments = Arguments::new().pointer(y).pointer(x).pointer(mean).pointer(inverse);
        let arguments = arguments.value(pixels).value(channels).buffer(&first).buffer(&second);
        let launch = Launch::linear(channels as u32, 256);
        self.module.function("channel_sums")?.launch(&self.stream, launch, &arguments)?;
        self.stream.synchronize()?;
        Ok((first.to_vec()?, second.to_vec()?))
    }
}

#[cfg(test)]
mod tests {
    use native::DataType;

    #[test]
    fn the_kernels_compile_for_hopper() {
        let strict = std::env::var_os("COUNTERPOINT_STRICT").is_some_and(|value| value != "0");
        for data_type in [DataType::F16, DataType::Bf16] {
            match super::compile(data_type, "sm_90") {
                Ok(compiled) => assert_eq!(compiled.log, ""),
                Err(missing) if missing.is_missing_library() && !strict => {
                    println!("skipped: {missing}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
