//! The threads of one rank's kernels, and the entry into code compiled for the machine's vector units.
//!
//! Work is cut by shape and every piece has one writer, so that results do not depend on the number of threads. Knows no
//! kernels.

use std::sync::OnceLock;

use rayon::prelude::*;

/// Elements below which a kernel stays on the calling thread: waking a second one costs some microseconds.
const WORTH_SHARING: usize = 32_768;

/// The threads that one rank's kernels may use.
#[derive(Debug)]
pub struct Workers {
    pool: Option<rayon::ThreadPool>,
    threads: usize,
}

impl Workers {
    /// `threads` threads including the caller's; 1 computes on the calling thread alone.
    pub fn new(threads: usize) -> Workers {
        let threads = threads.max(1);
        let pool = (threads > 1)
            .then(|| {
                rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .thread_name(|i| format!("kernel {i}"))
                    .build()
                    .ok()
            })
            .flatten();
        let threads = if pool.is_some() { threads } else { 1 };
        Workers { pool, threads }
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// `task(i)` for each i below `count`, results in order. `elements` is the size of the whole work.
    pub fn map<R: Send>(
        &self,
        count: usize,
        elements: usize,
        task: impl Fn(usize) -> R + Sync,
    ) -> Vec<R> {
        match &self.pool {
            Some(pool) if elements > WORTH_SHARING && count > 1 => {
                pool.install(|| (0..count).into_par_iter().map(&task).collect())
            }
            _ => (0..count).map(task).collect(),
        }
    }

    /// `task(item)` for each item; items carry the pieces of the outputs they write.
    pub fn each<I: Send>(&self, items: Vec<I>, elements: usize, task: impl Fn(I) + Sync) {
        match &self.pool {
            Some(pool) if elements > WORTH_SHARING && items.len() > 1 => {
                pool.install(|| items.into_par_iter().for_each(&task));
            }
            _ => items.into_iter().for_each(task),
        }
    }
}

/// The best vector unit of this machine.
pub(super) fn arch() -> pulp::Arch {
    static ARCH: OnceLock<pulp::Arch> = OnceLock::new();
    *ARCH.get_or_init(pulp::Arch::new)
}

/// Runs `body` compiled for the best vector unit of this machine. Everything it calls must be inlined.
#[inline(always)]
pub fn vectorised<R>(body: impl FnOnce() -> R) -> R {
    arch().dispatch(body)
}
