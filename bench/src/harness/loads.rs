//! Loads for a device: a large product, a memory-bound kernel, and memory for collectives. Knows no measurement.

use anyhow::{Context as _, Result};
use native::{
    DataType,
    cublaslt::{Algorithm, Lt, Matmul, MatmulBuffers, MatmulDescription},
    driver::{Context, Event, Priority, Stream},
    memory::{self, DeviceBuffer, DevicePointer},
    module::{Arguments, Function, Launch, Module},
    nccl::{CommunicationBuffer, Communicator, Registration, Window},
    nvrtc,
};

use super::{Random, Session};

/// A square product in bf16 with its operands.
pub struct Product {
    matmul: Matmul,
    algorithm: Algorithm,
    buffers: MatmulBuffers,
    _memory: (Vec<DeviceBuffer<u16>>, DeviceBuffer<u8>),
}

impl Product {
    /// `size`^3, tuned for `multiprocessors` of the device, or for all. The fastest of the first few algorithms.
    pub fn new(session: &Session, size: usize, multiprocessors: Option<u32>) -> Result<Product> {
        let lt = Lt::new(&session.context)?;
        let mut description = MatmulDescription::linear(DataType::Bf16, size, size, size);
        description.multiprocessors = multiprocessors;
        let matmul = Matmul::new(&lt, description)?;
        let algorithms = matmul.algorithms(4)?;
        let workspace = algorithms.iter().map(|a| a.workspace).max().unwrap_or(0);
        let mut matrices = vec![];
        for seed in 0..3 {
            let mut matrix = DeviceBuffer::<u16>::new(&session.context, size * size)?;
            let deviation = if seed == 1 { 0.02 } else { 1.0 };
            matrix.fill_repeating(&Random::new(seed).normals(
                DataType::Bf16,
                1 << 20,
                deviation,
            ))?;
            matrices.push(matrix);
        }
        let workspace = DeviceBuffer::<u8>::new(&session.context, workspace)?;
        let buffers = MatmulBuffers {
            left: matrices[0].pointer(),
            right: matrices[1].pointer(),
            output: matrices[2].pointer(),
            workspace: workspace.pointer(),
            workspace_bytes: workspace.bytes(),
            ..MatmulBuffers::default()
        };
        let algorithm = *algorithms.first().context("cuBLASLt has no algorithm")?;
        let mut product = Product { matmul, algorithm, buffers, _memory: (matrices, workspace) };
        product.algorithm = product.fastest(session, &algorithms)?;
        Ok(product)
    }

    fn fastest(&mut self, session: &Session, algorithms: &[Algorithm]) -> Result<Algorithm> {
        const ROUNDS: usize = 3;
        let stream = &session.stream;
        let (start, end) = (Event::timing(&session.context)?, Event::timing(&session.context)?);
        let mut best = (f64::INFINITY, self.algorithm);
        let mut times = vec![vec![]; algorithms.len()];
        for _ in 0..ROUNDS {
            for (times, algorithm) in times.iter_mut().zip(algorithms) {
                self.algorithm = *algorithm;
                start.record(stream)?;
                self.run(stream)?;
                self.run(stream)?;
                end.record(stream)?;
                end.synchronize()?;
                times.push(end.milliseconds_since(&start)?);
            }
        }
        for (mut times, algorithm) in times.into_iter().zip(algorithms) {
            times.sort_by(f64::total_cmp);
            if times[ROUNDS / 2] < best.0 {
                best = (times[ROUNDS / 2], *algorithm);
            }
        }
        Ok(best.1)
    }

    /// Submits one product.
    pub fn run(&self, stream: &Stream) -> Result<()> {
        Ok(self.matmul.run(stream, &self.algorithm, (1.0, 0.0), &self.buffers)?)
    }
}

const SWEEP: &str = r#"
extern "C" __global__ void __launch_bounds__(512) sweep(
    float4* __restrict__ y, const float4* __restrict__ x, float a, long long n)
{
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) {
        float4 v = x[i], w = y[i];
        y[i] = make_float4(w.x + a * v.x, w.y + a * v.y, w.z + a * v.z, w.w + a * v.w);
    }
}
"#;

/// The source of the memory-bound kernel, for checks without a device.
pub fn compile_sweep(architecture: &str) -> Result<Vec<u8>> {
    Ok(nvrtc::compile("sweep.cu", SWEEP, architecture, &[])?.cubin)
}

/// A memory-bound kernel: y += a x over two buffers; reads twice and writes once what it is long.
pub struct Sweep {
    kernel: Function,
    x: DeviceBuffer<f32>,
    y: DeviceBuffer<f32>,
    multiprocessors: u32,
}

impl Sweep {
    /// Over `bytes` in each buffer.
    pub fn new(session: &Session, bytes: usize) -> Result<Sweep> {
        let device = session.context.device();
        let module = Module::load(&session.context, &compile_sweep(&device.architecture())?)?;
        let buffer = || DeviceBuffer::zeroed(&session.context, bytes / 4);
        Ok(Sweep {
            kernel: module.function("sweep")?,
            x: buffer()?,
            y: buffer()?,
            multiprocessors: device.multiprocessors,
        })
    }

    /// Bytes read and written by one call.
    pub fn bytes(&self) -> usize {
        3 * self.x.bytes()
    }

    /// Submits one call on `multiprocessors` of the device, or on all.
    pub fn run(&self, stream: &Stream, multiprocessors: Option<u32>) -> Result<()> {
        const BLOCKS_EACH: u32 = 4;
        let blocks = multiprocessors.unwrap_or(self.multiprocessors) * BLOCKS_EACH;
        let arguments = Arguments::new()
            .buffer(&self.y)
            .buffer(&self.x)
            .value(0.5f32)
            .value((self.x.len() / 4) as i64);
        Ok(self.kernel.launch(stream, Launch::linear(blocks, 512), &arguments)?)
    }
}

/// Where a collective's buffers lie and how peers reach them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placement {
    /// The driver's memory, unknown to NCCL.
    Plain,
    /// The driver's memory, registered.
    Registered,
    /// NCCL's memory, registered.
    Allocated,
    /// NCCL's memory as symmetric windows.
    Window,
}

impl Placement {
    /// Every placement.
    pub const ALL: [Placement; 4] =
        [Placement::Plain, Placement::Registered, Placement::Allocated, Placement::Window];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Plain => "plain",
            Placement::Registered => "registered",
            Placement::Allocated => "ncclMemAlloc + registered",
            Placement::Window => "symmetric window",
        }
    }
}

enum Owned {
    Driver { _from: DeviceBuffer<u8>, _to: DeviceBuffer<u8> },
    Nccl { _from: CommunicationBuffer, _to: CommunicationBuffer },
}

/// A source and a target for collectives of one communicator.
pub struct Exchange<'a> {
    // Dropped in this order: what refers to the memory before the memory.
    _registrations: Vec<Registration<'a>>,
    _windows: Vec<Window<'a>>,
    _owned: Owned,
    /// The source.
    pub from: DevicePointer,
    /// The target.
    pub to: DevicePointer,
}

impl<'a> Exchange<'a> {
    /// `bytes` of random values for each; every rank must call it.
    pub fn new(
        communicator: &'a Communicator,
        placement: Placement,
        bytes: usize,
    ) -> Result<Exchange<'a>> {
        let context = communicator.context();
        let (owned, from, to) = match placement {
            Placement::Plain | Placement::Registered => {
                let (from, to) =
                    (DeviceBuffer::zeroed(context, bytes)?, DeviceBuffer::zeroed(context, bytes)?);
                let at = (from.pointer(), to.pointer());
                (Owned::Driver { _from: from, _to: to }, at.0, at.1)
            }
            Placement::Allocated | Placement::Window => {
                let from = CommunicationBuffer::new(context, bytes)?;
                let to = CommunicationBuffer::new(context, bytes)?;
                let at = (from.pointer(), to.pointer());
                (Owned::Nccl { _from: from, _to: to }, at.0, at.1)
            }
        };
        let (mut registrations, mut windows) = (vec![], vec![]);
        for at in [from, to] {
            match placement {
                Placement::Plain => {}
                Placement::Registered | Placement::Allocated => {
                    registrations.push(communicator.register(at, bytes)?);
                }
                Placement::Window => windows.push(communicator.symmetric_window(at, bytes)?),
            }
        }
        let stream = Stream::new(context, Priority::Normal)?;
        let mut random = Random::new(u64::from(communicator.rank()) + 1);
        let pattern: Vec<f32> = (0..1 << 16).map(|_| random.normal()).collect();
        tile(context, from, bytes, &pattern, &stream)?;
        tile(context, to, bytes, &pattern, &stream)?;
        let (_registrations, _windows, _owned) = (registrations, windows, owned);
        Ok(Exchange { _registrations, _windows, _owned, from, to })
    }
}

/// Fills `bytes` at `to` by repeating `pattern`, whose length must be a power of two.
pub fn tile(
    context: &Context,
    to: DevicePointer,
    bytes: usize,
    pattern: &[f32],
    stream: &Stream,
) -> Result<()> {
    let first = DeviceBuffer::from_slice(context, pattern)?;
    let mut have = first.bytes().min(bytes);
    memory::copy_on(to, first.pointer(), have, stream)?;
    while have < bytes {
        let next = have.min(bytes - have);
        memory::copy_on(to.offset(have), to, next, stream)?;
        have += next;
    }
    Ok(stream.synchronize()?)
}

/// `count` values at `from` on the host; waits for the device.
pub fn read(
    context: &Context,
    from: DevicePointer,
    count: usize,
    stream: &Stream,
) -> Result<Vec<f32>> {
    let copy = DeviceBuffer::<f32>::new(context, count)?;
    memory::copy_on(copy.pointer(), from, copy.bytes(), stream)?;
    stream.synchronize()?;
    Ok(copy.to_vec()?)
}
