//! The page of a diagnosis in a browser: it fits, adds up, zooms, and leads from findings to spans and back.
//!
//! Needs Chromium (`COUNTERPOINT_CHROMIUM` names one). Without it the test says so and passes; `COUNTERPOINT_STRICT`
//! makes that a failure.

#[expect(dead_code, reason = "this page is of ranks with devices")]
mod kineto;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use kineto::{Job, traces};
use serde_json::{Value, json};

#[expect(clippy::print_stdout, reason = "a test says why it is left out")]
fn chromium() -> Option<String> {
    let named = std::env::var("COUNTERPOINT_CHROMIUM").ok();
    let known = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    let works = |program: &String| {
        let mut check = Command::new(program);
        check.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success())
    };
    let found = named.into_iter().chain(known).find(works);
    if found.is_none() {
        let strict = std::env::var_os("COUNTERPOINT_STRICT").is_some_and(|value| value != "0");
        assert!(!strict, "no Chromium: set COUNTERPOINT_CHROMIUM");
        println!("left out: no Chromium");
    }
    found
}

/// What the acts of `page/acts.js` tell of a page.
fn told(chromium: &str, folder: &Path, width: u32, dark: bool) -> Value {
    let scheme = if dark { 0 } else { 1 };
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        // Nothing may come from elsewhere, and nothing could.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .arg(format!("--window-size={width},900"))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", folder.join("acted.html").display()))
        .output()
        .expect("starts");
    let dom = String::from_utf8_lossy(&output.stdout);
    let told = dom.split("<pre id=\"told\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let told = told.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let plain = told.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", " ");
    serde_json::from_str(&plain.replace("&amp;", "&")).expect("JSON")
}

#[test]
fn the_page_fits_adds_up_zooms_and_links() {
    let Some(chromium) = chromium() else { return };
    let place = tempfile::tempdir().expect("a folder");
    for (rank, text) in traces(&Job::default()).into_iter().enumerate() {
        fs::write(place.path().join(format!("r{rank}.json")), text).expect("writes");
    }
    let status = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
        .args(["diagnose", "r0.json", "r1.json", "--html", "page.html"])
        .current_dir(place.path())
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("starts").success());
    let page = fs::read_to_string(place.path().join("page.html")).expect("a page");
    let watch = "<script>window.errors = []; addEventListener('error', e => errors.push(e.message));</script>";
    let acts = format!("<script>{}</script></body>", include_str!("page/acts.js"));
    let acted = page.replacen("<main>", &format!("{watch}<main>"), 1).replacen("</body>", &acts, 1);
    fs::write(place.path().join("acted.html"), acted).expect("writes");
    for (width, dark) in [(1280, false), (1280, true), (800, false), (800, true)] {
        let told = told(&chromium, place.path(), width, dark);
        let expected = json!({
            "fits": true,
            "dark": dark,
            "background": if dark { "rgb(20, 23, 27)" } else { "rgb(255, 255, 255)" },
            "requests": 0,
            "adds_up": [0, 0],
            "whole": true,
            "key_zooms": true,
            "key_moves": true,
            "wheel_scrolls": true,
            "wheel_zooms": true,
            "drag_moves": true,
            "escape": null,
            "next": true,
            "hash": "#finding-1",
            "errors": [],
        });
        for (key, value) in expected.as_object().expect("an object") {
            assert_eq!(&told[key], value, "{key} at {width}, dark {dark}: {told:#}");
        }
        assert_eq!(told["link"]["shown"], true, "{told:#}");
        assert_eq!(told["link"]["name"], told["link"]["cites"], "{told:#}");
        let begins =
            |key: &str, text: &str| told[key].as_str().is_some_and(|t| t.starts_with(text));
        assert!(begins("title", "Matrix products run in fp32"), "{told:#}");
        assert!(begins("measures", "measured: "), "{told:#}");
        assert!(begins("tip", "1. ") && begins("target", "1. "), "{told:#}");
        assert!(told["colours"].as_u64().is_some_and(|count| count >= 3), "{told:#}");
    }
}
