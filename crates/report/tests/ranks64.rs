//! A job of 64 ranks on 8 hosts with a known answer: clocks apart, a rank missing, a file cut off, process ids that
//! repeat between hosts, two captures a rank.

#[path = "../examples/ranks64/job.rs"]
mod job;

use std::path::Path;

use diagnose::{
    diagnosis::{Diagnosis, diagnose},
    job::{Input, Job, Unusable},
    leaf::Leaf,
};
use report::{
    comparison,
    diagnosis::{json, terminal},
};

/// Writes a run and reads its folder as `counterpoint diagnose` does.
fn read(folder: &Path, run: &job::Run) -> Job {
    job::write(folder, run).expect("files are written");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.sort();
    let (mut inputs, mut unusable) = (vec![], vec![]);
    for (path, reading) in paths.iter().zip(readers::read_files(&paths)) {
        match reading {
            Ok(r) => inputs.push(Input { name: r.input, format: r.format, timeline: r.timeline }),
            Err(error) => unusable
                .push(Unusable { name: path.display().to_string(), reason: error.to_string() }),
        }
    }
    Job::new(inputs, unusable)
}

fn answered(name: &str) -> (Job, Diagnosis) {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, run) = job::runs(40, 5).into_iter().find(|(own, _)| *own == name).expect("a run");
    let job = read(folder.path(), &run);
    let diagnosis = diagnose(&job);
    (job, diagnosis)
}

#[test]
fn captures_clocks_and_damage_are_sorted_out() {
    let (job, _) = answered("ranks64");
    assert!(job.unusable.is_empty(), "{:?}", job.unusable);
    let ranks: Vec<u32> = job.participants.iter().map(|participant| participant.rank).collect();
    assert_eq!(ranks, (0..64).filter(|rank| *rank != 37).collect::<Vec<_>>());
    assert_eq!(job.set_aside.len(), 63, "one of two captures of each rank");
    let hosts: Vec<i64> = [0, 8, 16, 24, 32, 40, 48, 56]
        .iter()
        .filter_map(|rank| {
            let at = job.participants.iter().position(|p| p.rank == *rank)?;
            Some((job.clock.relations[at]?.offset + 500).div_euclid(1000) * 1000)
        })
        .collect();
    assert_eq!(
        hosts,
        [0, 3_100_000, -4_900_000, 2_200_000, -1_700_000, 4_400_000, -3_300_000, 5_000_000]
    );
    assert!(job.replay_is_usable(), "{:?}", job.unchanged);
    for (participant, accounted) in job.participants.iter().zip(&job.accounted) {
        let count = accounted.steps.counted.len() as i64;
        assert_eq!(count, if participant.rank == 21 { 1 } else { 3 });
        let per_step = |time: i64| (time + 50_000) / count / 100_000;
        assert_eq!(per_step(accounted.account.compute()), 1_400);
        assert_eq!(per_step(accounted.account.get(Leaf::Transfer)), 1_800);
    }
}

#[test]
fn the_report_fits_on_a_screen_and_names_the_cause() {
    let (job, diagnosis) = answered("ranks64");
    let text = terminal::render(&job, &diagnosis, terminal::Style::default());
    assert!(text.lines().count() <= 50, "{text}");
    assert!(text.contains("ranks 0-36, 38-63"), "{text}");
    let first = text.lines().next().unwrap_or("");
    for part in ["xposed communication on all ranks", "40 % of its rate", "108 ms of every step"] {
        assert!(first.contains(part), "{first}");
    }
    let costs: Vec<(&str, i64)> = diagnosis
        .findings
        .iter()
        .map(|f| (f.id, f.cost.map_or(0, |cost| cost.estimate.round() as i64)))
        .collect();
    assert_eq!(costs, [("net.fabric_below_spec", 108), ("cpu.affinity_missing", 12)]);
    assert!(diagnosis.findings[0].remedy.text.contains("NCCL_SOCKET_IFNAME"));
    assert!(diagnosis.findings[1].remedy.text.contains("--bind-to core gives one core"));
}

#[test]
fn efficiency_at_one_eight_and_sixty_four_ranks() {
    let runs: Vec<_> = ["ranks1", "ranks8", "ranks64", "repaired64"]
        .into_iter()
        .map(|name| {
            let (job, diagnosis) = answered(name);
            (name.to_owned(), json::document(&job, &diagnosis))
        })
        .collect();
    let scaling = comparison::scaling(&runs).unwrap();
    let percent: Vec<i64> = scaling["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (run["efficiency"].as_f64().unwrap() * 100.0).round() as i64)
        .collect();
    assert_eq!(percent, [100, 85, 45, 72], "{scaling}");
    assert_eq!(scaling["runs"][2]["leaf"], "comm.transfer");
}
