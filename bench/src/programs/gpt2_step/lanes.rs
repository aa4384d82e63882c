//! The step's two queues and their recording into one CUDA graph. Knows waits between tasks; not what the tasks are.

use anyhow::Result;
use native::{
    driver::{Context, Event, Priority, Stream},
    graph::{self, Graph},
};

use super::task::{Lane, Task};

/// The two queues.
pub struct Lanes {
    /// What the step waits for.
    pub main: Stream,
    /// What runs beside it.
    side: Stream,
}

impl Lanes {
    /// The main lane's waiting blocks start first.
    pub fn new(context: &Context) -> Result<Lanes> {
        let main = Stream::new(context, Priority::High)?;
        Ok(Lanes { main, side: Stream::new(context, Priority::Normal)? })
    }

    /// Records all tasks with their waits across lanes.
    pub fn capture(
        &self,
        tasks: &[Task],
        submit: impl Fn(&Stream, &Task) -> native::Result<()>,
    ) -> Result<Graph> {
        let mut done: Vec<Option<Event>> = tasks.iter().map(|_| None).collect();
        for awaited in tasks.iter().flat_map(|task| &task.after) {
            done[*awaited] = Some(Event::ordering(self.main.context())?);
        }
        Ok(graph::capture(&self.main, || {
            for (task, event) in tasks.iter().zip(&done) {
                let lane = match task.lane {
                    Lane::Main => &self.main,
                    Lane::Side => &self.side,
                };
                for awaited in task.after.iter().filter_map(|other| done[*other].as_ref()) {
                    lane.wait(awaited)?;
                }
                submit(lane, task)?;
                if let Some(event) = event {
                    event.record(lane)?;
                }
            }
            Ok(())
        })?)
    }
}
