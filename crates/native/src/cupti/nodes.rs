//! Which node of a CUDA graph came from which call: ids from recording to the records of a replay.
//!
//! A node has an id when it is recorded and may have another in the executable graph. CUPTI tells of both moments.
//! Knows labels, not what they mean.

use std::{
    ffi::c_void,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use cudarc::driver::sys::CUgraphNode;

use super::{
    calls::{Cupti, GraphData, ResourceData},
    lock,
};
use crate::{Error, Result, library::call};

const RESOURCE: u32 = 3;
const NODE_CREATED: u32 = 13;
const NODE_CLONED: u32 = 20;

/// One thing that happened to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A node was recorded while this label was set.
    Recorded {
        /// The label.
        label: u64,
        /// The node's id.
        node: u64,
    },
    /// A node was copied, as instantiation does.
    Copied {
        /// Id of the node that was copied.
        from: u64,
        /// Id of the copy.
        to: u64,
    },
}

static IN_USE: AtomicBool = AtomicBool::new(false);
static LABEL: AtomicU64 = AtomicU64::new(0);
static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

/// Watches the nodes of all graphs; ends when dropped. One at a time per process.
pub struct NodeWatch {
    cupti: &'static Cupti,
    subscriber: *mut c_void,
}

impl NodeWatch {
    /// Watches from now on.
    pub fn start() -> Result<NodeWatch> {
        let cupti = Cupti::get()?;
        if IN_USE.swap(true, Ordering::SeqCst) {
            return Err(Error::Argument("graph nodes are already being watched".into()));
        }
        lock(&SEEN).clear();
        let mut watch = NodeWatch { cupti, subscriber: std::ptr::null_mut() };
        call!(cupti, cuptiSubscribe(&raw mut watch.subscriber, noticed, std::ptr::null_mut()))?;
        for event in [NODE_CREATED, NODE_CLONED] {
            call!(cupti, cuptiEnableCallback(1, watch.subscriber, RESOURCE, event))?;
        }
        Ok(watch)
    }

    /// Nodes recorded from now on, by any thread, carry `label`.
    pub fn label(&self, label: u64) {
        LABEL.store(label, Ordering::SeqCst);
    }

    /// What happened since the last call, in order.
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *lock(&SEEN))
    }
}

impl Drop for NodeWatch {
    fn drop(&mut self) {
        if !self.subscriber.is_null() {
            let _ = call!(self.cupti, cuptiUnsubscribe(self.subscriber));
        }
        IN_USE.store(false, Ordering::SeqCst);
    }
}

unsafe extern "C" fn noticed(_: *mut c_void, domain: u32, event: u32, data: *const c_void) {
    if domain != RESOURCE || data.is_null() {
        return;
    }
    // SAFETY: events of this domain carry this structure, and those of graph nodes point to the next.
    let graph = unsafe {
        let descriptor = (*data.cast::<ResourceData>()).descriptor.cast::<GraphData>();
        let Some(graph) = descriptor.as_ref() else { return };
        graph
    };
    let Some(node) = id_of(graph.node) else { return };
    let seen = match event {
        NODE_CREATED => {
            let label = LABEL.load(Ordering::SeqCst);
            Seen::Recorded { label, node }
        }
        NODE_CLONED => match id_of(graph.original_node) {
            Some(from) => Seen::Copied { from, to: node },
            None => return,
        },
        _ => return,
    };
    lock(&SEEN).push(seen);
}

fn id_of(node: CUgraphNode) -> Option<u64> {
    if node.is_null() {
        return None;
    }
    let cupti = Cupti::get().ok()?;
    let mut id = 0u64;
    call!(cupti, cuptiGetGraphNodeId(node, &raw mut id)).ok().map(|()| id)
}
