//! CUDA graphs: recording what streams are told, and replaying it. Knows nothing of the engine's own graph.

use std::{collections::BTreeMap, ffi::c_int};

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode};

use crate::{
    Result,
    driver::{Context, Stream},
    library::call,
};

/// Recorded work that has not been made ready to run.
pub struct Graph {
    context: Context,
    raw: CUgraph,
}

// SAFETY: the driver lets any one thread at a time use a graph; methods that change it take it by value.
unsafe impl Send for Graph {}

/// Records what `record` submits to `stream`, and to streams that wait for events of it and are waited for.
///
/// Nothing runs while recording. An error of `record` ends the recording and is returned.
pub fn capture(stream: &Stream, record: impl FnOnce() -> Result<()>) -> Result<Graph> {
    // Calls that are unsafe during capture fail on this thread and are allowed on others.
    const THREAD_LOCAL: c_int = 1;
    let context = stream.context().clone();
    let driver = context.driver()?;
    call!(driver, cuStreamBeginCapture_v2(stream.raw(), THREAD_LOCAL))?;
    let recorded = record();
    let mut raw: CUgraph = std::ptr::null_mut();
    context.bind()?;
    let ended = call!(driver, cuStreamEndCapture(stream.raw(), &raw mut raw));
    let graph = (!raw.is_null()).then_some(Graph { context, raw });
    recorded?;
    ended?;
    graph.ok_or_else(|| crate::Error::Argument("the recording gave no graph".into()))
}

/// Whether `stream` is being recorded.
pub fn is_capturing(stream: &Stream) -> Result<bool> {
    let mut status: c_int = 0;
    call!(stream.context().driver()?, cuStreamIsCapturing(stream.raw(), &raw mut status))?;
    Ok(status != 0)
}

impl Graph {
    /// Nodes by the driver's type number (0 kernel, 1 copy, 2 fill, 3 host, 6 wait, 7 record).
    pub fn nodes(&self) -> Result<BTreeMap<i32, usize>> {
        let driver = self.context.driver()?;
        let mut count = 0usize;
        call!(driver, cuGraphGetNodes(self.raw, std::ptr::null_mut(), &raw mut count))?;
        let mut nodes: Vec<CUgraphNode> = vec![std::ptr::null_mut(); count];
        call!(driver, cuGraphGetNodes(self.raw, nodes.as_mut_ptr(), &raw mut count))?;
        let mut types = BTreeMap::new();
        for node in &nodes[..count] {
            let mut kind: c_int = 0;
            call!(driver, cuGraphNodeGetType(*node, &raw mut kind))?;
            *types.entry(kind).or_insert(0) += 1;
        }
        Ok(types)
    }

    /// Makes the work ready to run. Node priorities of the recorded streams are kept.
    pub fn instantiate(&self) -> Result<GraphExec> {
        const USE_NODE_PRIORITY: u64 = 8;
        let mut raw: CUgraphExec = std::ptr::null_mut();
        call!(
            self.context.driver()?,
            cuGraphInstantiateWithFlags(&raw mut raw, self.raw, USE_NODE_PRIORITY)
        )?;
        Ok(GraphExec { context: self.context.clone(), raw })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.context.bind();
        let _ = call!(self.context.driver_unbound(), cuGraphDestroy(self.raw));
    }
}

/// Recorded work, ready to run. Addresses and scalar arguments are those of the recording.
pub struct GraphExec {
    context: Context,
    raw: CUgraphExec,
}

// SAFETY: the driver lets any one thread at a time use it; `launch` takes it by mutable reference.
unsafe impl Send for GraphExec {}

impl GraphExec {
    /// Sends the graph to the device ahead of its first launch.
    pub fn upload(&mut self, stream: &Stream) -> Result<()> {
        call!(self.context.driver()?, cuGraphUpload(self.raw, stream.raw()))
    }

    /// Runs it in the order of `stream`.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        call!(self.context.driver()?, cuGraphLaunch(self.raw, stream.raw()))
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let _ = self.context.bind();
        let _ = call!(self.context.driver_unbound(), cuGraphExecDestroy(self.raw));
    }
}
