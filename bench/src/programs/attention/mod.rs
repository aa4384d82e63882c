//! Causal attention forward and backward on packed and on separate q, k, v: every engine that cuDNN offers, whether
//! its numbers are right, whether repeated runs agree bit by bit, and whether its scratch memory must be zero before.

mod expected;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bench::{
    engines::{self, Choice},
    harness::{
        Candidate, Common, Random, Report, Row, Session, Timing, decode, interleave_each,
        relative_error, say,
    },
    reference::Reference,
};
use clap::Args;
use native::{
    DataType,
    cudnn::{
        AttentionBackward, AttentionForward, AttentionShape, Bound, DeviceProperties, Handle,
        Place, Plan, Window,
    },
    memory::{self, DeviceBuffer, DevicePointer},
};

use self::expected::{Expected, Head, causal};

/// Length of the repeated random pattern; odd, so that tokens differ.
const PATTERN: usize = (1 << 20) + 7;

/// What to measure.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Shapes as batch x heads x length x head
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = parse,
        default_value = "32x12x1024x64,32x6x1024x128,16x16x1024x64,8x16x1024x128"
    )]
    shapes: Vec<AttentionShape>,
    /// How often each backward engine is run again and compared bit by bit
    #[arg(long, default_value_t = 20)]
    repeats: usize,
    /// Samples of each candidate
    #[arg(long, default_value_t = 15)]
    rounds: usize,
}

/// How q, k and v lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Columns of one `[tokens, 3 d]` matrix.
    Packed,
    /// Three `[tokens, d]` matrices.
    Separate,
}

/// Measures and writes `attention.json` and `attention.md`.
pub fn run(options: &Options) -> Result<()> {
    let shapes = &options.shapes;
    let Some(session) = options.common.open()? else { return dry_run(shapes) };
    let handle = Handle::new(&session.stream)?;
    let mut report = Report::new(&options.common, session.header()?, "attention")?;
    let mut wrong = vec![];
    for shape in shapes {
        for layout in [Layout::Packed, Layout::Separate] {
            let case = Case::new(&session, *shape, layout)?;
            case.measure(&session, &handle, options, &mut report, &mut wrong)?;
        }
    }
    report.finish()?;
    if !wrong.is_empty() {
        bail!("{} results are wrong: {}", wrong.len(), wrong.join("; "));
    }
    Ok(())
}

fn parse(text: &str) -> Result<AttentionShape> {
    let numbers: Option<Vec<i64>> = text.split('x').map(|n| n.parse().ok()).collect();
    let numbers = numbers.filter(|n| n.iter().all(|n| *n > 0)).unwrap_or_default();
    let [batch, heads, length, head] = numbers[..] else {
        bail!("expected batch x heads x length x head, as in 32x12x1024x64");
    };
    let scale = 1.0 / (head as f32).sqrt();
    Ok(AttentionShape {
        data_type: DataType::Bf16,
        batch,
        heads,
        length,
        head,
        causal: true,
        scale,
    })
}

fn name(shape: &AttentionShape) -> String {
    format!("b{} h{} t{} d{}", shape.batch, shape.heads, shape.length, shape.head)
}

fn windows(shape: &AttentionShape, layout: Layout) -> (Window, Window) {
    let width = match layout {
        Layout::Packed => 3 * shape.heads * shape.head,
        Layout::Separate => shape.heads * shape.head,
    };
    (Window::columns(shape, width), Window::dense(shape))
}

/// Builds every plan for an H200 with no device and prints what is offered and refused.
fn dry_run(shapes: &[AttentionShape]) -> Result<()> {
    let properties = DeviceProperties::h200()?;
    let place = Place::Properties(&properties);
    for shape in shapes {
        for layout in [Layout::Packed, Layout::Separate] {
            let (qkv, o) = windows(shape, layout);
            let graphs = [
                ("forward", shape.forward(&qkv, &o)?.0),
                ("backward", shape.backward(&qkv, &o)?.0),
            ];
            for (pass, graph) in graphs {
                let graph = graph.finish(place)?;
                let found = engines::candidates(&graph, place, &Choice::everything())?;
                say(&format!(
                    "{} {layout:?} {pass}: {} engines known",
                    name(shape),
                    graph.engine_count()?
                ));
                for c in &found.plans {
                    let (engine, knobs) = (c.facts.engine, engines::knobs(&c.facts));
                    let bytes = c.plan.workspace();
                    say(&format!("  {} engine {engine} [{knobs}] workspace {bytes}", c.origin));
                }
                for refusal in &found.refused {
                    say(&format!("  refused {refusal}"));
                }
                say(&format!("  unfit engines {:?}", found.unfit));
            }
        }
    }
    Ok(())
}

/// Buffers of one call.
struct Set {
    /// q, k, v: one packed matrix or three after each other.
    qkv: DeviceBuffer<u16>,
    dqkv: DeviceBuffer<u16>,
    o: DeviceBuffer<u16>,
    d_o: DeviceBuffer<u16>,
    statistics: DeviceBuffer<f32>,
    row_sum: DeviceBuffer<f32>,
    accumulator: DeviceBuffer<f32>,
}

impl Set {
    /// Addresses of the three parts of a qkv-shaped buffer.
    fn parts(
        shape: &AttentionShape,
        layout: Layout,
        buffer: &DeviceBuffer<u16>,
    ) -> [DevicePointer; 3] {
        let width = (shape.heads * shape.head) as usize;
        let step = match layout {
            Layout::Packed => width,
            Layout::Separate => width * (shape.batch * shape.length) as usize,
        };
        [0, 1, 2].map(|part| buffer.pointer().offset(2 * part * step))
    }
}

/// A shape and layout with its buffers and the expected numbers of one head.
struct Case {
    shape: AttentionShape,
    layout: Layout,
    sets: Vec<Set>,
    /// Sequence and head that are compared.
    compared: (usize, usize),
    expected: Expected,
    reference: Reference,
}

/// A plan bound to every set.
struct Ready {
    origin: String,
    facts: native::cudnn::EngineFacts,
    bound: Vec<Bound>,
    workspace: DeviceBuffer<u8>,
    needs_zero: bool,
    row: Row,
}

impl Case {
    fn new(session: &Session, shape: AttentionShape, layout: Layout) -> Result<Case> {
        let context = &session.context;
        let tokens = (shape.batch * shape.length) as usize;
        let (d, rows) = ((shape.heads * shape.head) as usize, tokens * shape.heads as usize);
        let (qkv, d_o) = (
            Random::new(1).normals(DataType::Bf16, PATTERN, 1.0),
            Random::new(2).normals(DataType::Bf16, PATTERN, 1.0),
        );
        let filled = |len: usize, pattern: &[u16]| -> Result<DeviceBuffer<u16>> {
            let mut buffer = DeviceBuffer::new(context, len)?;
            buffer.fill_repeating(pattern)?;
            Ok(buffer)
        };
        let sets = (0..session.rotating_sets(2 * 8 * tokens * d))
            .map(|_| {
                Ok(Set {
                    qkv: filled(3 * tokens * d, &qkv)?,
                    dqkv: DeviceBuffer::zeroed(context, 3 * tokens * d)?,
                    o: DeviceBuffer::zeroed(context, tokens * d)?,
                    d_o: filled(tokens * d, &d_o)?,
                    statistics: DeviceBuffer::zeroed(context, rows)?,
                    row_sum: DeviceBuffer::zeroed(context, rows)?,
                    accumulator: DeviceBuffer::zeroed(context, tokens * d)?,
                })
            })
            .collect::<Result<Vec<Set>>>()?;
        let compared = (shape.batch as usize - 1, shape.heads as usize / 2);
        let reference = Reference::new(session, DataType::Bf16)?;
        let expected = causal(&empty_head());
        let mut case = Case { shape, layout, sets, compared, expected, reference };
        let [q, k, v] = [0, 1, 2].map(|part| case.head_of(&case.sets[0].qkv, part));
        let d_o = case.head_of_dense(&case.sets[0].d_o);
        case.expected = causal(&Head {
            length: shape.length as usize,
            size: shape.head as usize,
            scale: f64::from(shape.scale),
            q: q?,
            k: k?,
            v: v?,
            d_o: d_o?,
        });
        Ok(case)
    }

    /// The compared head of part 0, 1 or 2 of a qkv-shaped buffer.
    fn head_of(&self, buffer: &DeviceBuffer<u16>, part: usize) -> Result<Vec<f64>> {
        let d = (self.shape.heads * self.shape.head) as usize;
        let tokens = (self.shape.batch * self.shape.length) as usize;
        match self.layout {
            Layout::Packed => self.cut(buffer, 0, 3 * d, part * d),
            Layout::Separate => self.cut(buffer, part * tokens * d, d, 0),
        }
    }

    fn head_of_dense(&self, buffer: &DeviceBuffer<u16>) -> Result<Vec<f64>> {
        self.cut(buffer, 0, (self.shape.heads * self.shape.head) as usize, 0)
    }

    /// The compared head of a matrix of `width` columns that starts at element `start`.
    fn cut(
        &self,
        buffer: &DeviceBuffer<u16>,
        start: usize,
        width: usize,
        column: usize,
    ) -> Result<Vec<f64>> {
        let (length, size) = (self.shape.length as usize, self.shape.head as usize);
        let (sequence, head) = self.compared;
        let rows = buffer.range_to_vec(start + sequence * length * width, length * width)?;
        let first = column + head * size;
        let tokens = rows.chunks(width).flat_map(|row| &row[first..first + size]);
        Ok(tokens.map(|bits| f64::from(decode(DataType::Bf16, *bits))).collect())
    }

    fn measure(
        &self,
        session: &Session,
        handle: &Handle,
        options: &Options,
        report: &mut Report,
        wrong: &mut Vec<String>,
    ) -> Result<()> {
        let place = Place::Device(handle);
        let (qkv, o) = windows(&self.shape, self.layout);
        let (graph, tensors) = self.shape.forward(&qkv, &o)?;
        let graph = graph.finish(place)?;
        let forward = engines::candidates(&graph, place, &Choice::everything())?;
        let mut ready = vec![];
        let mut refused = forward.refused;
        for c in forward.plans {
            let bind = |set: &Set, plan: &Plan, workspace| {
                self.bind_forward(&tensors, set, plan, workspace)
            };
            let check = |bound: &Bound| self.check_forward(session, handle, bound);
            match self.prepare(session, c, &bind, &check) {
                Ok(r) => ready.push(r),
                Err(error) => refused.push(format!("{error:#}")),
            }
        }
        self.time(session, handle, "forward", ready, options, report, wrong)?;

        let (graph, tensors) = self.shape.backward(&qkv, &o)?;
        let graph = graph.finish(place)?;
        let backward = engines::candidates(&graph, place, &Choice::everything())?;
        refused.extend(backward.refused);
        let mut ready = vec![];
        for c in backward.plans {
            let bind = |set: &Set, plan: &Plan, workspace| {
                self.bind_backward(&tensors, set, plan, workspace)
            };
            let check =
                |bound: &Bound| self.check_backward(session, handle, bound, options.repeats);
            match self.prepare(session, c, &bind, &check) {
                Ok(r) => ready.push(r),
                Err(error) => refused.push(format!("{error:#}")),
            }
        }
        self.time(session, handle, "backward", ready, options, report, wrong)?;
        for refusal in refused {
            say(&format!("{} {:?} refused {refusal}", name(&self.shape), self.layout));
        }
        Ok(())
    }

    fn prepare(
        &self,
        session: &Session,
        candidate: engines::Candidate,
        bind: &dyn Fn(&Set, &Plan, DevicePointer) -> native::Result<Bound>,
        check: &dyn Fn(&Bound) -> Result<(bool, Row)>,
    ) -> Result<Ready> {
        let engines::Candidate { origin, facts, plan } = candidate;
        let workspace = DeviceBuffer::new(&session.context, plan.workspace())?;
        let bound = self
            .sets
            .iter()
            .map(|set| bind(set, &plan, workspace.pointer()))
            .collect::<native::Result<Vec<_>>>()?;
        let (needs_zero, row) =
            check(&bound[0]).with_context(|| format!("{origin} engine {}", facts.engine))?;
        Ok(Ready { origin, facts, bound, workspace, needs_zero, row })
    }

    fn bind_forward(
        &self,
        t: &AttentionForward,
        set: &Set,
        plan: &Plan,
        workspace: DevicePointer,
    ) -> native::Result<Bound> {
        let [q, k, v] = Set::parts(&self.shape, self.layout, &set.qkv);
        let (o, statistics) = (set.o.pointer(), set.statistics.pointer());
        plan.bind(&[(t.q, q), (t.k, k), (t.v, v), (t.o, o), (t.statistics, statistics)], workspace)
    }

    fn bind_backward(
        &self,
        t: &AttentionBackward,
        set: &Set,
        plan: &Plan,
        workspace: DevicePointer,
    ) -> native::Result<Bound> {
        let [q, k, v] = Set::parts(&self.shape, self.layout, &set.qkv);
        let [dq, dk, dv] = Set::parts(&self.shape, self.layout, &set.dqkv);
        plan.bind(
            &[
                (t.q, q),
                (t.k, k),
                (t.v, v),
                (t.o, set.o.pointer()),
                (t.d_o, set.d_o.pointer()),
                (t.statistics, set.statistics.pointer()),
                (t.row_sum, set.row_sum.pointer()),
                (t.dq_accumulator, set.accumulator.pointer()),
                (t.dq, dq),
                (t.dk, dk),
                (t.dv, dv),
            ],
            workspace,
        )
    }

    /// Errors and repeatability of a forward plan; leaves o and the statistics of set 0 right.
    fn check_forward(
        &self,
        session: &Session,
        handle: &Handle,
        bound: &Bound,
    ) -> Result<(bool, Row)> {
        let set = &self.sets[0];
        let run = || -> Result<(Vec<u16>, Vec<f32>)> {
            memory::fill_on(set.o.pointer(), 0xFF, set.o.bytes(), &session.stream)?;
            let statistics = &set.statistics;
            memory::fill_on(statistics.pointer(), 0xFF, statistics.bytes(), &session.stream)?;
            bound.execute(handle)?;
            session.stream.synchronize()?;
            Ok((set.o.to_vec()?, statistics.to_vec()?))
        };
        let (first, second) = (run()?, run()?);
        let same = first.0 == second.0 && bits(&first.1) == bits(&second.1);
        let o = self.head_of_dense(&set.o)?;
        let length = self.shape.length as usize;
        let row = (self.compared.0 * self.shape.heads as usize + self.compared.1) * length;
        let statistics = second.1[row..row + length].iter().map(|v| f64::from(*v));
        let row = Row::new()
            .error("error o", relative_error(o.into_iter().zip(self.expected.o.iter().copied())))
            .error(
                "error statistics",
                relative_error(statistics.zip(self.expected.statistics.iter().copied())),
            )
            .text("two runs", if same { "equal" } else { "differ" });
        Ok((false, row))
    }

    /// Errors and repeatability of a backward plan, and whether its accumulator must be zero before.
    fn check_backward(
        &self,
        session: &Session,
        handle: &Handle,
        bound: &Bound,
        repeats: usize,
    ) -> Result<(bool, Row)> {
        let set = &self.sets[0];
        let run = |accumulator: u8| -> Result<()> {
            let stream = &session.stream;
            memory::fill_on(set.dqkv.pointer(), 0xFF, set.dqkv.bytes(), stream)?;
            memory::fill_on(set.row_sum.pointer(), 0xFF, set.row_sum.bytes(), stream)?;
            let (to, bytes) = (set.accumulator.pointer(), set.accumulator.bytes());
            memory::fill_on(to, accumulator, bytes, stream)?;
            bound.execute(handle)?;
            Ok(stream.synchronize()?)
        };
        let errors = || -> Result<[f64; 3]> {
            let mut errors = [0.0; 3];
            let e = &self.expected;
            for (part, expected) in [&e.dq, &e.dk, &e.dv].into_iter().enumerate() {
                let got = self.head_of(&set.dqkv, part)?;
                errors[part] = relative_error(got.into_iter().zip(expected.iter().copied()));
            }
            Ok(errors)
        };
        // 0x3F3F3F3F is 0.75 in fp32: visible in dq where it is added to.
        run(0x3F)?;
        let needs_zero = errors()?[0] > 0.05;
        run(0)?;
        let first = DeviceBuffer::<u16>::new(&session.context, set.dqkv.len())?;
        let bytes = set.dqkv.bytes();
        memory::copy_on(first.pointer(), set.dqkv.pointer(), bytes, &session.stream)?;
        let d = (self.shape.heads * self.shape.head) as usize;
        let step = match self.layout {
            Layout::Packed => d,
            Layout::Separate => set.dqkv.len() / 3,
        };
        // Runs in which dq, dk, dv differed, and the most elements that did.
        let (mut different, mut most) = ([0; 3], 0);
        for _ in 0..repeats {
            run(0)?;
            let pair = [set.dqkv.pointer(), first.pointer()];
            let counts = self.reference.differing(session, pair, set.dqkv.len(), step)?;
            for (different, count) in different.iter_mut().zip(counts) {
                *different += u64::from(count > 0);
                most = most.max(count);
            }
        }
        let [dq, dk, dv] = errors()?;
        let row = Row::new()
            .error("error dq", dq)
            .error("error dk", dk)
            .error("error dv", dv)
            .integer("repeats", repeats as u64)
            .integer("dq differs", different[0])
            .integer("dk differs", different[1])
            .integer("dv differs", different[2])
            .integer("elements at most", most)
            .text("accumulator", if needs_zero { "must be zero" } else { "any" });
        Ok((needs_zero, row))
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one measurement")]
    fn time(
        &self,
        session: &Session,
        handle: &Handle,
        pass: &str,
        ready: Vec<Ready>,
        options: &Options,
        report: &mut Report,
        wrong: &mut Vec<String>,
    ) -> Result<()> {
        let mut candidates: Vec<Candidate> = ready
            .iter()
            .map(|r| {
                Candidate::new(r.origin.clone(), |stream, set| {
                    let index = set % r.bound.len();
                    if r.needs_zero {
                        let to = &self.sets[index].accumulator;
                        memory::fill_on(to.pointer(), 0, to.bytes(), stream)?;
                    }
                    Ok(r.bound[index].execute(handle)?)
                })
            })
            .collect();
        let timing = Timing {
            rounds: options.rounds,
            sets: self.sets.len(),
            sample: Duration::from_millis(4),
            ..Timing::default()
        };
        let results = interleave_each(session, &mut candidates, &timing)?;
        // Backward does five products of the size of which forward does two.
        let factor = if pass == "forward" { 1.0 } else { 2.5 };
        for (r, result) in ready.iter().zip(results) {
            let row = Row::new()
                .text("shape", name(&self.shape))
                .text("q, k, v", format!("{:?}", self.layout).to_lowercase())
                .text("proposed as", &r.origin)
                .integer("engine", r.facts.engine as u64)
                .text("knobs", engines::knobs(&r.facts));
            let row = match result {
                Ok(samples) => row.timing(&samples).number(
                    "TFLOP/s",
                    factor * self.shape.operations() / samples.median / 1e9,
                    0,
                ),
                Err(error) => row.text("refused", format!("{error:#}")),
            };
            let note = if r.facts.nondeterministic { "nondeterministic" } else { "" };
            let row = row
                .integer("workspace", r.workspace.bytes() as u64)
                .text("note", note)
                .append(r.row.clone());
            if row.greatest("error").is_none_or(|error| error > 2e-2) {
                wrong.push(format!("{} {pass} {}", name(&self.shape), r.origin));
            }
            report.add(&format!("Attention {pass}, causal, bf16"), row)?;
        }
        Ok(())
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn empty_head() -> Head {
    Head { length: 0, size: 0, scale: 1.0, q: vec![], k: vec![], v: vec![], d_o: vec![] }
}
