//! NCCL: collectives between ranks, each rank a process or a thread with its own device.
//!
//! Knows addresses and counts, not tensors; does not choose how ranks find each other: a [`UniqueId`] is 128 bytes
//! that the caller hands from one rank to all. Collectives are submitted to a stream and may be recorded into a CUDA
//! graph. NVLink multicast (NVLS) stays off: a communicator is refused unless `NCCL_NVLS_ENABLE=0` is set.

mod calls;
mod memory;

use std::ffi::{CString, c_int, c_void};

use calls::{Config, Nccl, RawCommunicator, RawId};
pub use memory::{CommunicationBuffer, Registration, Window};

use crate::{
    DataType, Error, Result,
    driver::{Context, Stream},
    library::call,
    memory::DevicePointer,
};

/// What ranks must share to meet: made by one of them, handed to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UniqueId(pub [u8; 128]);

impl UniqueId {
    /// A new meeting point, served by this process. Needs no device.
    pub fn new() -> Result<UniqueId> {
        let mut raw = RawId([0; 128]);
        call!(Nccl::get()?, ncclGetUniqueId(&raw mut raw))?;
        Ok(UniqueId(raw.0))
    }
}

/// The library's version code: 22809 is 2.28.9. Needs no device.
pub fn version() -> Result<u32> {
    let mut code: c_int = 0;
    call!(Nccl::get()?, ncclGetVersion(&raw mut code))?;
    Ok(code as u32)
}

/// How elements are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reduction {
    /// Sum.
    Sum,
    /// Greatest.
    Max,
    /// Least.
    Min,
    /// Sum divided by the number of ranks.
    Mean,
}

impl Reduction {
    fn code(self) -> c_int {
        match self {
            Reduction::Sum => 0,
            Reduction::Max => 2,
            Reduction::Min => 3,
            Reduction::Mean => 4,
        }
    }
}

fn type_code(data_type: DataType) -> c_int {
    match data_type {
        DataType::Boolean => 1,
        DataType::I32 => 2,
        DataType::F16 => 6,
        DataType::F32 => 7,
        DataType::Bf16 => 9,
    }
}

/// How many blocks (CTAs) a communicator's kernels may use, and its name in NCCL's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Fewest blocks of a kernel; `None` is NCCL's choice.
    pub min_ctas: Option<u32>,
    /// Most blocks of a kernel; `None` is NCCL's choice.
    pub max_ctas: Option<u32>,
    /// Use copy engines and no kernel where NCCL can: all-gather and all-to-all between symmetric [`Window`]s.
    pub zero_ctas: bool,
    /// Name in NCCL's log.
    pub name: Option<String>,
}

impl Options {
    /// At most `count` blocks.
    pub fn at_most(count: u32) -> Options {
        Options { max_ctas: Some(count), ..Options::default() }
    }

    fn with_config<T>(&self, version: u32, use_it: impl FnOnce(&mut Config) -> T) -> Result<T> {
        const CTA_POLICY_ZERO: c_int = 2;
        let number = |value: Option<u32>, field: &str| match value {
            None => Ok(None),
            Some(v @ 1..=64) => Ok(Some(v as c_int)),
            Some(v) => Err(Error::Argument(format!("{field} is {v}: NCCL takes 1 to 64"))),
        };
        let name = self.name.as_deref().map(CString::new).transpose().map_err(|_| {
            Error::Argument("a communicator's name must not contain a zero byte".into())
        })?;
        let mut config = Config::new(version);
        config.min_ctas = number(self.min_ctas, "min_ctas")?.unwrap_or(config.min_ctas);
        config.max_ctas = number(self.max_ctas, "max_ctas")?.unwrap_or(config.max_ctas);
        if self.zero_ctas {
            config.cta_policy = CTA_POLICY_ZERO;
        }
        config.name = name.as_ref().map_or(std::ptr::null(), |n| n.as_ptr());
        Ok(use_it(&mut config))
    }
}

/// This rank's end of a communicator.
///
/// Graphs that recorded its collectives must be dropped before it: NCCL waits for them. Dropping it aborts what still
/// runs; [`Communicator::close`] waits for the other ranks instead.
pub struct Communicator {
    context: Context,
    nccl: &'static Nccl,
    raw: RawCommunicator,
    rank: u32,
    ranks: u32,
}

// SAFETY: NCCL takes calls on a communicator from any one thread at a time; it is not `Sync`.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Meets the other `ranks - 1` ranks at `id`; returns when all have come. Each rank has its own device.
    pub fn new(
        context: &Context,
        id: UniqueId,
        rank: u32,
        ranks: u32,
        options: &Options,
    ) -> Result<Communicator> {
        if rank >= ranks {
            return Err(Error::Argument(format!("rank {rank} of {ranks} ranks")));
        }
        multicast_is_off()?;
        let nccl = Nccl::get()?;
        let version = supported_version()?;
        context.bind()?;
        let mut raw: RawCommunicator = std::ptr::null_mut();
        options.with_config(version, |config| {
            call!(
                nccl,
                ncclCommInitRankConfig(
                    &raw mut raw,
                    ranks as c_int,
                    RawId(id.0),
                    rank as c_int,
                    &raw mut *config
                )
            )
        })??;
        Ok(Communicator { context: context.clone(), nccl, raw, rank, ranks })
    }

    /// A communicator of the ranks that give the same `color`, ordered by `key`; `None` for a rank without a color.
    /// All ranks must call it.
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        options: &Options,
    ) -> Result<Option<Communicator>> {
        const NO_COLOR: c_int = -1;
        self.context.bind()?;
        let color = color.map_or(NO_COLOR, |c| c as c_int);
        let mut raw: RawCommunicator = std::ptr::null_mut();
        options.with_config(supported_version()?, |config| {
            call!(self.nccl, ncclCommSplit(self.raw, color, key, &raw mut raw, &raw mut *config))
        })??;
        if raw.is_null() {
            return Ok(None);
        }
        let (mut rank, mut ranks): (c_int, c_int) = (0, 0);
        call!(self.nccl, ncclCommUserRank(raw, &raw mut rank))?;
        call!(self.nccl, ncclCommCount(raw, &raw mut ranks))?;
        let (context, nccl) = (self.context.clone(), self.nccl);
        Ok(Some(Communicator { context, nccl, raw, rank: rank as u32, ranks: ranks as u32 }))
    }

    /// This rank's number.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The device's context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Combines `count` elements of all ranks; every rank gets all results. `from` may be `to`.
    pub fn all_reduce(
        &self,
        from: DevicePointer,
        to: DevicePointer,
        count: usize,
        (data_type, reduction): (DataType, Reduction),
        stream: &Stream,
    ) -> Result<()> {
        let (ty, op) = (type_code(data_type), reduction.code());
        self.context.bind()?;
        call!(self.nccl, ncclAllReduce(from.raw(), to.raw(), count, ty, op, self.raw, stream.raw()))
    }

    /// Combines `count * ranks` elements of all ranks; rank r gets the r-th `count` of the results. In place where
    /// `to` is the r-th part of `from`.
    pub fn reduce_scatter(
        &self,
        from: DevicePointer,
        to: DevicePointer,
        count: usize,
        (data_type, reduction): (DataType, Reduction),
        stream: &Stream,
    ) -> Result<()> {
        let (ty, op) = (type_code(data_type), reduction.code());
        self.context.bind()?;
        call!(
            self.nccl,
            ncclReduceScatter(from.raw(), to.raw(), count, ty, op, self.raw, stream.raw())
        )
    }

    /// Every rank gets `count` elements of each rank, in the order of ranks. In place where `from` is the own part of
    /// `to`.
    pub fn all_gather(
        &self,
        from: DevicePointer,
        to: DevicePointer,
        count: usize,
        data_type: DataType,
        stream: &Stream,
    ) -> Result<()> {
        let ty = type_code(data_type);
        self.context.bind()?;
        call!(self.nccl, ncclAllGather(from.raw(), to.raw(), count, ty, self.raw, stream.raw()))
    }

    /// Every rank gets `count` elements of rank `root`.
    pub fn broadcast(
        &self,
        from: DevicePointer,
        to: DevicePointer,
        count: usize,
        (data_type, root): (DataType, u32),
        stream: &Stream,
    ) -> Result<()> {
        let (ty, root) = (type_code(data_type), root as c_int);
        self.context.bind()?;
        call!(
            self.nccl,
            ncclBroadcast(from.raw(), to.raw(), count, ty, root, self.raw, stream.raw())
        )
    }

    /// The r-th `count` elements of `from` go to rank r, and those of rank r arrive as the r-th of `to`. The buffers
    /// must not overlap. A library without the call gets the same as sends and receives in one group.
    pub fn all_to_all(
        &self,
        from: DevicePointer,
        to: DevicePointer,
        count: usize,
        data_type: DataType,
        stream: &Stream,
    ) -> Result<()> {
        let ty = type_code(data_type);
        self.context.bind()?;
        if let Some(all_to_all) = self.nccl.ncclAlltoAll {
            // SAFETY: the communicator and the stream are alive; NCCL checks the rest.
            let code =
                unsafe { all_to_all(from.raw(), to.raw(), count, ty, self.raw, stream.raw()) };
            return self.nccl.check(code, "ncclAlltoAll");
        }
        let bytes = count * data_type.bytes();
        group(|| {
            for peer in 0..self.ranks {
                let at = peer as usize * bytes;
                self.send(from.offset(at), count, (data_type, peer), stream)?;
                self.receive(to.offset(at), count, (data_type, peer), stream)?;
            }
            Ok(())
        })
    }

    /// Sends `count` elements to a rank that receives as many. Several at once must be in a [`group`].
    pub fn send(
        &self,
        from: DevicePointer,
        count: usize,
        (data_type, peer): (DataType, u32),
        stream: &Stream,
    ) -> Result<()> {
        let (ty, peer) = (type_code(data_type), peer as c_int);
        self.context.bind()?;
        call!(self.nccl, ncclSend(from.raw(), count, ty, peer, self.raw, stream.raw()))
    }

    /// Receives `count` elements from a rank that sends as many. Several at once must be in a [`group`].
    pub fn receive(
        &self,
        to: DevicePointer,
        count: usize,
        (data_type, peer): (DataType, u32),
        stream: &Stream,
    ) -> Result<()> {
        let (ty, peer) = (type_code(data_type), peer as c_int);
        self.context.bind()?;
        call!(self.nccl, ncclRecv(to.raw(), count, ty, peer, self.raw, stream.raw()))
    }

    /// An error that happened on the device or another rank since the last call of this kind.
    pub fn asynchronous_error(&self) -> Result<()> {
        const IN_PROGRESS: c_int = 7;
        let mut code: c_int = 0;
        call!(self.nccl, ncclCommGetAsyncError(self.raw, &raw mut code))?;
        if code == IN_PROGRESS {
            return Ok(());
        }
        self.nccl.check(code, "a collective")
    }

    /// Waits for all submitted collectives on all ranks, then frees the communicator. All ranks must call it.
    pub fn close(mut self) -> Result<()> {
        let raw = std::mem::replace(&mut self.raw, std::ptr::null_mut());
        self.context.bind()?;
        call!(self.nccl, ncclCommFinalize(raw))?;
        call!(self.nccl, ncclCommDestroy(raw))
    }

    /// Ends what runs on this communicator and frees it, without the other ranks.
    pub fn abort(mut self) -> Result<()> {
        let raw = std::mem::replace(&mut self.raw, std::ptr::null_mut());
        self.context.bind()?;
        call!(self.nccl, ncclCommAbort(raw))
    }

    fn raw(&self) -> RawCommunicator {
        self.raw
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            let _ = self.context.bind();
            let _ = call!(self.nccl, ncclCommAbort(self.raw));
        }
    }
}

/// Submits every collective of `submit` as one operation: one launch, and progress side by side.
pub fn group(submit: impl FnOnce() -> Result<()>) -> Result<()> {
    let nccl = Nccl::get()?;
    call!(nccl, ncclGroupStart())?;
    let submitted = submit();
    let ended = call!(nccl, ncclGroupEnd());
    submitted?;
    ended
}

fn multicast_is_off() -> Result<()> {
    match std::env::var("NCCL_NVLS_ENABLE") {
        Ok(value) if value == "0" => Ok(()),
        other => Err(Error::Argument(format!(
            "NCCL_NVLS_ENABLE is {}: NVLink multicast must be off, set NCCL_NVLS_ENABLE=0",
            other.as_deref().unwrap_or("not set")
        ))),
    }
}

fn supported_version() -> Result<u32> {
    let found = version()?;
    if found < calls::OLDEST {
        let name = |code: u32| format!("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
        let (found, needed) = (name(found), name(calls::OLDEST));
        return Err(Error::Argument(format!("NCCL {found} is too old: {needed} is needed")));
    }
    // The layout of the configuration is that of 2.28; a newer library reads it by its size and this code.
    Ok(found.min(22899))
}

fn void(pointer: DevicePointer) -> *mut c_void {
    pointer.raw()
}
