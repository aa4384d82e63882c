//! One trace event, read from its bytes. Knows the field names of every generation of the format; not what they
//! mean together.

use super::json::{Scanner, integer, microseconds, unescape};

/// What an event is, by its category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// A kernel on a device.
    Kernel,
    /// A copy on a device.
    Memcpy,
    /// A fill on a device.
    Memset,
    /// A call of the CUDA or HIP runtime or driver.
    Runtime,
    /// An operator of the framework.
    HostOp,
    /// A range marked by the program.
    Mark,
    /// Work of the profiler.
    Overhead,
    /// A wait of a stream or the host, by event.
    Synchronisation,
    /// An exchange between ranks on a lane of our engine.
    Exchange,
    /// A wait of our engine for data.
    Data,
    /// Any other wait of our engine.
    Wait,
}

/// One event with the fields that matter; texts borrow from the file's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// What it is.
    pub category: Category,
    /// Name, escapes as they stand.
    pub name: &'a [u8],
    /// Start in nanoseconds.
    pub start: i64,
    /// Length in nanoseconds.
    pub duration: i64,
    /// Process id; -1 where it is no number.
    pub process: i64,
    /// Thread id; -1 where it is no number.
    pub thread: i64,
    /// Device number.
    pub device: i64,
    /// Stream number.
    pub stream: i64,
    /// Links a device operation to its launch; 0 where there is none.
    pub correlation: i64,
    /// Bytes moved; -1 where not said.
    pub bytes: i64,
    /// Fields of a collective.
    pub collective: Option<CollectiveFields<'a>>,
    /// `Input Dims` as they stand, where shapes were recorded.
    pub input_dims: Option<&'a [u8]>,
    /// What our engine says of its own spans; `None` for spans of others.
    pub own: Option<OwnFields<'a>>,
}

/// The fields of our engine's recordings, as `report::chrome_trace` writes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnFields<'a> {
    /// `operation` of an exchange.
    pub operation: &'a [u8],
    /// `group`.
    pub group: &'a [u8],
    /// `ranks`.
    pub ranks: Option<i64>,
    /// `message_bytes`.
    pub message_bytes: Option<i64>,
    /// `sequence`.
    pub sequence: Option<i64>,
    /// `node` of the plan.
    pub node: Option<i64>,
    /// `path` of the module.
    pub path: &'a [u8],
    /// `flops` of the plan.
    pub flops: Option<i64>,
    /// `predicted_ns`.
    pub predicted: Option<i64>,
}

/// The fields NCCL kernels carry.
#[derive(Clone, Copy, Debug, Default)]
pub struct CollectiveFields<'a> {
    /// `Collective name`.
    pub name: &'a [u8],
    /// `In msg nelems`.
    pub elements: Option<i64>,
    /// `dtype`.
    pub dtype: &'a [u8],
    /// `Group size`.
    pub group_size: Option<i64>,
    /// `Process Group Name`.
    pub group: &'a [u8],
    /// `Process Group Ranks`.
    pub ranks: &'a [u8],
    /// `Seq`.
    pub sequence: Option<i64>,
}

/// What the bytes of one event turned out to be.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "most are spans, and each is used up at once")]
pub enum Parsed<'a> {
    /// A span that is kept.
    Span(Event<'a>),
    /// A whole event that carries nothing the analysis needs; the text says what.
    Unused(&'static str),
    /// Names a process or thread: `(process, thread or -1, name)`.
    Name(i64, i64, &'a [u8]),
    /// Complete JSON, but a field that every event needs is missing or wrong.
    Damaged,
}

/// Reads one event and walks past it; `None` where the JSON itself ends early or is broken.
pub fn event<'a>(scanner: &mut Scanner<'a>) -> Option<Parsed<'a>> {
    let (mut phase, mut category, mut name): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
    let (mut start, mut duration) = (None, None);
    let (mut process, mut thread) = (-1, -1);
    let mut arguments = Arguments::default();
    scanner.object(|key, scanner| {
        match key {
            b"ph" => phase = scanner.scalar()?,
            b"cat" => category = scanner.scalar()?,
            b"name" => {
                name = if scanner.peek()? == b'"' { scanner.text()? } else { scanner.skip()? }
            }
            b"ts" => start = microseconds(scanner.scalar()?),
            b"dur" => duration = microseconds(scanner.scalar()?),
            b"pid" => process = integer(scanner.scalar()?).unwrap_or(-1),
            b"tid" => thread = integer(scanner.scalar()?).unwrap_or(-1),
            b"args" if scanner.peek()? == b'{' => arguments.read(scanner)?,
            _ => {
                scanner.skip()?;
            }
        }
        Some(())
    })?;
    Some(match phase {
        b"X" => {
            let Some(kept) = kept_category(category) else {
                return Some(Parsed::Unused(unused_reason(category)));
            };
            match (start, duration) {
                (Some(start), Some(duration)) if duration >= 0 => Parsed::Span(Event {
                    category: kept,
                    name,
                    start,
                    duration,
                    process,
                    thread,
                    device: arguments.device.unwrap_or(process),
                    stream: arguments.stream.unwrap_or(thread),
                    correlation: arguments.correlation,
                    bytes: arguments.bytes,
                    collective: (!arguments.collective.name.is_empty()
                        || arguments.collective.elements.is_some())
                    .then_some(arguments.collective),
                    input_dims: arguments.input_dims,
                    own: is_own(category).then_some(arguments.own),
                }),
                _ => Parsed::Damaged,
            }
        }
        b"M" => match name {
            b"process_name" | b"process_labels" => Parsed::Name(process, -1, arguments.name),
            b"thread_name" => Parsed::Name(process, thread, arguments.name),
            _ => Parsed::Unused("metadata"),
        },
        b"s" | b"f" | b"t" => Parsed::Unused("flow arrow"),
        b"i" | b"I" => Parsed::Unused("instant event"),
        b"C" => Parsed::Unused("counter"),
        b"" => Parsed::Damaged,
        _ => Parsed::Unused("event phase"),
    })
}

fn kept_category(category: &[u8]) -> Option<Category> {
    Some(match category {
        b"kernel" | b"Kernel" => Category::Kernel,
        b"gpu_memcpy" | b"Memcpy" => Category::Memcpy,
        b"gpu_memset" | b"Memset" => Category::Memset,
        b"cuda_runtime"
        | b"cuda_driver"
        | b"Runtime"
        | b"hip_runtime"
        | b"hip_driver"
        | b"privateuse1_runtime" => Category::Runtime,
        b"cpu_op" | b"Operator" => Category::HostOp,
        b"user_annotation" => Category::Mark,
        b"overhead" => Category::Overhead,
        b"cuda_sync" => Category::Synchronisation,
        b"compute" => Category::Kernel,
        b"communication" => Category::Exchange,
        b"copy" => Category::Memcpy,
        b"fill" => Category::Memset,
        b"call" => Category::Runtime,
        b"host operator" => Category::HostOp,
        b"mark" => Category::Mark,
        b"data" => Category::Data,
        b"wait" => Category::Wait,
        _ => return None,
    })
}

/// Whether our engine writes this category and nobody else does.
fn is_own(category: &[u8]) -> bool {
    let own: [&[u8]; 9] = [
        b"compute",
        b"communication",
        b"copy",
        b"fill",
        b"call",
        b"host operator",
        b"mark",
        b"data",
        b"wait",
    ];
    own.contains(&category)
}

fn unused_reason(category: &[u8]) -> &'static str {
    match category {
        b"python_function" => "python function",
        b"gpu_user_annotation" => "annotation repeated on the device",
        b"Trace" => "trace span",
        b"" => "event without category",
        _ => "event of another category",
    }
}

#[derive(Debug)]
struct Arguments<'a> {
    device: Option<i64>,
    stream: Option<i64>,
    correlation: i64,
    bytes: i64,
    name: &'a [u8],
    collective: CollectiveFields<'a>,
    input_dims: Option<&'a [u8]>,
    own: OwnFields<'a>,
}

impl Default for Arguments<'_> {
    fn default() -> Self {
        Arguments {
            device: None,
            stream: None,
            correlation: 0,
            bytes: -1,
            name: b"",
            collective: CollectiveFields::default(),
            input_dims: None,
            own: OwnFields::default(),
        }
    }
}

impl<'a> Arguments<'a> {
    fn read(&mut self, scanner: &mut Scanner<'a>) -> Option<()> {
        let mut own = |key: &'a [u8], scanner: &mut Scanner<'a>| -> Option<()> {
            match key {
                b"device" => self.device = integer(scanner.scalar()?),
                b"stream" => self.stream = integer(scanner.scalar()?),
                b"correlation" => self.correlation = integer(scanner.scalar()?).unwrap_or(0),
                b"bytes" => self.bytes = integer(scanner.scalar()?).unwrap_or(-1),
                b"name" | b"labels" => self.name = scanner.scalar()?,
                b"Collective name" => self.collective.name = scanner.scalar()?,
                b"In msg nelems" | b"In msg size" => {
                    self.collective.elements = integer(scanner.scalar()?);
                }
                b"dtype" => self.collective.dtype = scanner.scalar()?,
                b"Group size" => self.collective.group_size = integer(scanner.scalar()?),
                b"Process Group Name" => self.collective.group = scanner.scalar()?,
                b"Process Group Ranks" => self.collective.ranks = scanner.skip()?,
                b"Seq" => self.collective.sequence = integer(scanner.scalar()?),
                b"Input Dims" => self.input_dims = Some(scanner.skip()?),
                b"operation" => self.own.operation = scanner.scalar()?,
                b"group" => self.own.group = scanner.scalar()?,
                b"ranks" => self.own.ranks = integer(scanner.scalar()?),
                b"message_bytes" => self.own.message_bytes = integer(scanner.scalar()?),
                b"sequence" => self.own.sequence = integer(scanner.scalar()?),
                b"node" => self.own.node = integer(scanner.scalar()?),
                b"path" => self.own.path = scanner.scalar()?,
                b"flops" => self.own.flops = integer(scanner.scalar()?),
                b"predicted_ns" => self.own.predicted = integer(scanner.scalar()?),
                _ => {
                    scanner.skip()?;
                }
            }
            Some(())
        };
        // Older generations write numbers as texts; `scalar` takes both. Lists and objects under these keys are damage
        // of this event only: walk past them.
        scanner.object(|key, scanner| {
            let nested = matches!(scanner.peek()?, b'{' | b'[');
            if nested && key != b"Process Group Ranks" && key != b"Input Dims" {
                scanner.skip()?;
                return Some(());
            }
            own(key, scanner)
        })
    }
}

/// `In msg nelems` times the size of `dtype`, as PyTorch writes dtypes.
pub fn message_bytes(fields: &CollectiveFields<'_>) -> Option<u64> {
    let elements = u64::try_from(fields.elements?).ok()?;
    let size = match fields.dtype {
        b"Double" | b"Long" | b"ComplexFloat" => 8,
        b"Float" | b"Int" | b"UInt32" => 4,
        b"Half" | b"BFloat16" | b"Short" | b"UInt16" => 2,
        b"Byte" | b"Char" | b"Bool" | b"Float8_e4m3fn" | b"Float8_e5m2" => 1,
        _ => return None,
    };
    elements.checked_mul(size)
}

/// The operation in our words, from the field `Collective name` or the kernel's name.
pub fn collective_operation(fields: Option<&CollectiveFields<'_>>, kernel: &[u8]) -> String {
    let stated = fields.map_or(String::new(), |fields| unescape(fields.name)).to_lowercase();
    let kernel = String::from_utf8_lossy(kernel).to_lowercase();
    let known: [(&str, &str); 12] = [
        ("allreduce", "all_reduce"),
        ("all_reduce", "all_reduce"),
        ("reducescatter", "reduce_scatter"),
        ("reduce_scatter", "reduce_scatter"),
        ("allgather", "all_gather"),
        ("all_gather", "all_gather"),
        ("alltoall", "all_to_all"),
        ("all_to_all", "all_to_all"),
        ("broadcast", "broadcast"),
        ("sendrecv", "send_receive"),
        ("reduce", "reduce"),
        ("send", "send_receive"),
    ];
    for text in [&stated, &kernel] {
        if let Some((_, operation)) = known.iter().find(|(found, _)| text.contains(found)) {
            return (*operation).to_owned();
        }
    }
    if stated.contains("recv") { "send_receive".to_owned() } else { "unknown".to_owned() }
}
