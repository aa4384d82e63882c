//! Findings of traces and logs become one where their processes are the same, and stay two where they are not.

use diagnose::{
    finding::{Confidence, Cost, CostBy, Evidence, Explanation, Finding, Severity},
    job::{Input, Job},
    joining::join,
};

const TRACE: &str = r#"{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA H200"}],
"distributedInfo":{"backend":"nccl","rank":0,"world_size":2},"traceEvents":[
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":811,"tid":811,"ts":1010,"dur":5,"args":{"correlation":7}},
{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":1020,"dur":300,"args":{"device":0,"stream":7,"correlation":7}}]}"#;

fn finding(id: &'static str, file: &str) -> Finding {
    let explanation =
        Explanation { id, layer: "communication", what: "", why: "", remedy: "", refuted_by: "" };
    let mut finding = explanation.finding(Severity::Slow, id);
    finding.evidence.push(Evidence {
        file: file.to_owned(),
        line: None,
        span: None,
        text: format!("{id} in {file}"),
    });
    finding
}

fn job(pid: u32) -> Job {
    let log = format!(
        "alpha:{pid}:{pid} [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\nalpha:{pid}:{pid} [0] NCCL INFO \
         Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
    );
    let inputs = [("trace", TRACE.to_owned()), ("log", log)];
    let inputs = inputs.into_iter().map(|(name, text)| {
        let input = readers::Input::from_bytes(name, text.into_bytes()).expect("bytes can be read");
        let reading = readers::read(input).expect("a reader knows it");
        Input { name: reading.input, format: reading.format, timeline: reading.timeline }
    });
    Job::new(inputs.collect(), vec![])
}

fn slow_transport() -> Finding {
    let mut general = finding("comm.slow_transport", "trace");
    general.cost = Some(Cost { estimate: 150.0, low: 140.0, high: 160.0, by: CostBy::Replay });
    general.ranks = vec![0, 1];
    general
}

#[test]
fn the_specific_cause_takes_over_the_cost_of_the_same_processes() {
    let mut specific = finding("p2p.disabled_by_env", "log");
    specific.confidence = Confidence::High;
    let joined = join(&job(811), vec![slow_transport(), specific]);
    let ids: Vec<&str> = joined.iter().map(|finding| finding.id).collect();
    assert_eq!(ids, ["p2p.disabled_by_env"]);
    assert_eq!(joined[0].cost.map(|cost| cost.estimate), Some(150.0));
    assert_eq!(joined[0].ranks, [0, 1]);
    assert_eq!(joined[0].title, "p2p.disabled_by_env: 150 ms of every step");
    assert_eq!(joined[0].evidence.len(), 2);
}

#[test]
fn a_log_of_other_processes_explains_nothing() {
    let joined = join(&job(4411), vec![slow_transport(), finding("p2p.disabled_by_env", "log")]);
    let costs: Vec<(&str, bool)> =
        joined.iter().map(|finding| (finding.id, finding.cost.is_some())).collect();
    assert_eq!(costs, [("comm.slow_transport", true), ("p2p.disabled_by_env", false)]);
}

#[test]
fn two_findings_of_one_cause_are_one_with_the_replayed_cost() {
    let mut by_log = finding("data.loader_starved", "log");
    by_log.cost = Some(Cost { estimate: 90.0, low: 0.0, high: 90.0, by: CostBy::Log });
    let mut by_trace = finding("data.loader_starved", "trace");
    by_trace.cost = Some(Cost { estimate: 70.0, low: 60.0, high: 80.0, by: CostBy::Replay });
    let joined = join(&job(811), vec![by_log, by_trace]);
    assert_eq!(joined.len(), 1);
    assert_eq!(joined[0].cost.map(|cost| cost.estimate), Some(70.0));
    assert_eq!(joined[0].evidence.len(), 2);
}
